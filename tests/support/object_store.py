"""An S3 server on a port of this machine, in a thread, with one empty room for each test that asks."""

from __future__ import annotations

import itertools
import logging
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import quote

from pyarrow import fs

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "test:tester",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",  # of pyarrow's client: Swift takes no others
}
BUCKET = "labels-and-messages"


@dataclass(frozen=True)
class Room:
    """Of the server that listens on `address`, HOST:PORT."""

    address: str
    prefix: str

    @property
    def url(self) -> str:
        """As a setting names it."""
        endpoint = quote(f"http://{self.address}", safe="")
        return f"s3://{BUCKET}/{self.prefix}?endpoint_override={endpoint}&region=us-east-1"

    @property
    def system(self) -> fs.S3FileSystem:
        return fs.S3FileSystem(endpoint_override=self.address, scheme="http", region="us-east-1")

    def keys(self, below: str = "") -> list[str]:
        selector = fs.FileSelector(f"{BUCKET}/{self.prefix}/{below}".rstrip("/"), recursive=True, allow_not_found=True)
        start = len(f"{BUCKET}/{self.prefix}/")
        return sorted(i.path[start:] for i in self.system.get_file_info(selector) if i.type == fs.FileType.File)

    def read(self, key: str) -> bytes:
        return bytes(self.system.open_input_stream(f"{BUCKET}/{self.prefix}/{key}").read())

    def put(self, key: str, data: bytes) -> None:
        """As somebody with the store's password could."""
        with self.system.open_output_stream(f"{BUCKET}/{self.prefix}/{key}") as out:
            out.write(data)

    def damage(self, key: str) -> bytes:
        """Flip a bit in the middle of an object; return what lies there now."""
        data = bytearray(self.read(key))
        data[len(data) // 2] ^= 1
        self.put(key, bytes(data))
        return bytes(data)

    def delete(self, key: str) -> None:
        self.system.delete_file(f"{BUCKET}/{self.prefix}/{key}")


class Server:
    def __init__(self, address: str) -> None:
        self.address, self._numbers = address, itertools.count()

    def room(self) -> Room:
        """An empty one."""
        return Room(self.address, f"test-{next(self._numbers)}")


@contextmanager
def server() -> Iterator[Server]:
    # it is loaded for the tests that need it only
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    running = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    try:
        urllib.request.urlopen(urllib.request.Request(f"http://{host}:{port}/{BUCKET}", method="PUT")).close()
        yield Server(f"{host}:{port}")
    finally:
        running.stop()


def age() -> None:
    """Whatever the server has is a year old."""
    from moto.s3.models import s3_backends

    for regions in s3_backends.values():
        for backend in regions.values():
            for bucket in backend.buckets.values():
                for key in bucket.keys.values():
                    key.last_modified = key.last_modified.replace(year=key.last_modified.year - 1)
