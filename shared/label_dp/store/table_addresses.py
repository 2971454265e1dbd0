"""Addresses of tables, for commands and calls in one process: a file, a folder, a pattern, `s3://`, `gs://`, `abfs://`,
`delta:PLACE@VERSION`, `iceberg:CATALOG/NAMESPACE.TABLE@SNAPSHOT`, and `-` for an Arrow IPC stream by a pipe. No call of
REST takes one.

Credentials come from the usual environment of each store and library. An address is shown without what follows a
question mark.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast
from urllib.parse import unquote, urlsplit

from label_dp.columnar.parts import TablePart
from label_dp.errors import InvalidInput, InvalidSettings, Unavailable
from label_dp.store.objects.address import Address, store_of
from label_dp.store.objects.bucket import Bucket, StoredFile

DELTA, ICEBERG, LAST, STREAM = "delta", "iceberg", "last", "-"
STORES = {"s3": "s3", "s3a": "s3", "gs": "gs", "az": "az", "abfs": "az", "abfss": "az"}
URL = re.compile(r"([a-z][a-z0-9+.-]*):/+(?=[^/])(.*)", re.DOTALL)  # a Path has one slash
VERSIONS = re.compile(r"(.*)@(?:(v?\d+|last)(\.\.))?(v?\d+)?", re.DOTALL)
FORMS = (
    "a file, a folder, a pattern such as 'in/*.parquet', s3://BUCKET/KEY, gs://BUCKET/KEY, abfs://CONTAINER/KEY, "
    "delta:PLACE@VERSION, iceberg:CATALOG/NAMESPACE.TABLE@SNAPSHOT, or - for an Arrow stream by a pipe"
)
Last = Callable[[str], str | None]  # the snapshot of a table in the last batch


@dataclass(frozen=True)
class TableAddress:
    """Address of a table. `kind`: file, store, delta, iceberg or "-"; `place`: a path, a URL or the name in a catalog.

    Of a lake table: the `version` (None: the newest), and the one `after` which its rows were appended, or LAST.
    """

    kind: str
    place: str
    version: int | None = None
    after: int | str | None = None

    @classmethod
    def parse(cls, text: str | os.PathLike[str]) -> TableAddress:
        """Parse an address. Raises InvalidInput."""
        spelled = os.fspath(text)
        scheme, colon, rest = spelled.partition(":")
        if colon and scheme in (DELTA, ICEBERG) and not Path(spelled).exists():
            return cls._lake(scheme, rest)
        match = URL.fullmatch(spelled)
        if match is None or (match[1] not in (*STORES, "file") and Path(spelled).exists()):
            return cls(STREAM if spelled == STREAM else "file", spelled)
        if match[1] == "file":
            return cls("file", unquote("/" + match[2].lstrip("/")))
        if match[1] not in STORES:
            raise InvalidInput(f"Tables are not read from '{match[1]}:' addresses. An address is {FORMS}.")
        return cls("store", f"{match[1]}://{match[2]}")

    @classmethod
    def _lake(cls, kind: str, rest: str) -> TableAddress:
        match = VERSIONS.fullmatch(rest)
        place, after, span, version = (rest, None, None, None) if match is None else match.groups()
        if match is not None and not (span or version):  # an @ of the place itself
            place = rest
        url = URL.fullmatch(place)
        if kind == DELTA and url is not None:
            place = unquote("/" + url[2].lstrip("/")) if url[1] == "file" else f"{url[1]}://{url[2]}"
        if kind == DELTA and url is not None and url[1] not in (*STORES, "file"):
            raise InvalidInput(f"Tables are not read from '{url[1]}:' addresses. An address is {FORMS}.")
        if not place or (kind == ICEBERG and (place.count("/") != 1 or "." not in place)):
            raise InvalidInput(f"'{kind}:{shown(place)}' names no table. An address is {FORMS}.")
        begin: int | str | None = after if after in (None, LAST) else int(str(after).lstrip("v"))
        address = cls(kind, place, None if version is None else int(version.lstrip("v")), begin)
        if kind == DELTA and isinstance(begin, int) and address.version is not None and address.version < begin:
            raise InvalidInput(f"'{address}' ends before it begins.")
        return address

    def __str__(self) -> str:
        if self.kind in ("file", "store", STREAM):
            return shown(self.place)
        span = "" if self.after is None else f"{self.after}.."
        version = "" if self.version is None else str(self.version)
        return f"{self.kind}:{shown(self.place)}" + (f"@{span}{version}" if span or version else "")


def shown(place: str) -> str:
    """Return an address as errors and results show it: nothing after a question mark, where keys may stand."""
    return place.partition("?")[0] if "://" in place else place


def store_fails(address: TableAddress) -> Unavailable:
    """Return the error for a store that does not answer, or not to us."""
    return Unavailable(
        f"The store of '{address}' cannot be used; try again later, or look at its address and credentials."
    )


def store_address(url: str) -> Address:
    """Parse the URL of an object or a folder in a store. Raises InvalidInput, without quoting the URL's options."""
    parts = urlsplit(url)
    maker, bucket, account = STORES[parts.scheme], parts.netloc, None
    if maker == "az" and "@" in bucket and ":" not in bucket:  # CONTAINER@ACCOUNT.dfs.core.windows.net
        bucket, _, host = bucket.partition("@")
        account = host.partition(".")[0]
    try:
        query = f"?{parts.query}" if parts.query else ""
        plain = Address.parse(f"{maker}://{bucket}{parts.path}{query}", "address")
    except InvalidSettings:
        raise InvalidInput(
            f"'{shown(url).rpartition('@')[2]}' is no address in a store. It must be s3://BUCKET/KEY, with region or "
            "endpoint_override after a question mark as needed, gs://BUCKET/KEY or abfs://CONTAINER/KEY, and hold no "
            "credentials."
        ) from None
    scheme, endpoint = plain.scheme, os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    if plain.host is None and maker == "s3" and endpoint.startswith("http://"):
        scheme = "http"
    return Address(bucket, unquote(plain.prefix), plain.region, plain.host, scheme, maker, account)


def bucket_at(address: Address) -> Bucket:
    """Open the whole bucket of an address. Raises InvalidInput (obstore or credentials are missing)."""
    try:
        return Bucket(store_of(address, "this address"), "")
    except InvalidSettings as error:
        raise InvalidInput(error.detail) from None


def file_part(path: Path) -> TablePart:
    """Return a local file as a part of a table."""
    return TablePart(str(path), lambda: path.open("rb"), path.stat().st_size, address=str(path.absolute()))


def stored_part(bucket: Bucket, name: str, key: str, size: int, options: str = "") -> TablePart:
    """Return an object as a part of a table; `options` of the table's address, after its question mark."""

    def opened() -> BinaryIO:
        return cast("BinaryIO", io.BufferedReader(StoredFile(bucket, key, size), 1 << 16))

    return TablePart(name, opened, size, address=f"{name}?{options}" if options else name)
