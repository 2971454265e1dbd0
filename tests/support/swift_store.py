"""OpenStack Swift with its S3 interface, of Debian's packages, on ports of this machine: one disk, one copy.

Beside moto, which keeps all in memory, it is a server that people run: its objects are files, its lists come from other
processes, large objects are put together by manifests, and it refuses what came to S3 later.
"""

from __future__ import annotations

import getpass
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from pyarrow import fs

from tests.support.object_store import BUCKET, CREDENTIALS, Server

PACKAGES = "memcached swift-proxy swift-account swift-container swift-object"
RINGS = ("account", "container", "object")
PROGRAMS = ("memcached", "swift-ring-builder", *(f"swift-{name}-server" for name in ("proxy", *RINGS)))
SECONDS = 30  # within which all of it answers

STORAGE = """
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
workers = 0
user = {login}
swift_dir = {home}
devices = {home}/disks
mount_check = false
disable_fallocate = true
log_level = ERROR
[pipeline:main]
pipeline = {name}-server
[app:{name}-server]
use = egg:swift#{name}
"""

PROXY = """
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
workers = 0
user = {login}
swift_dir = {home}
log_level = ERROR
[pipeline:main]
pipeline = catch_errors cache listing_formats s3api tempauth bulk slo dlo proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:cache]
use = egg:swift#memcache
memcache_servers = 127.0.0.1:{memory}
[filter:listing_formats]
use = egg:swift#listing_formats
[filter:s3api]
use = egg:swift#s3api
location = us-east-1
s3_acl = false
allow_multipart_uploads = true
min_segment_size = 1048576
[filter:tempauth]
use = egg:swift#tempauth
user_{account}_{name_there} = {secret} .admin
[filter:bulk]
use = egg:swift#bulk
[filter:slo]
use = egg:swift#slo
[filter:dlo]
use = egg:swift#dlo
"""
ACCOUNT, _, USER = CREDENTIALS["AWS_ACCESS_KEY_ID"].partition(":")


@contextmanager
def server(home: Path) -> Iterator[Server]:
    """Start it empty, with the bucket made, below a folder whose files may have extended attributes."""
    if absent := [name for name in PROGRAMS if shutil.which(name) is None]:
        pytest.skip(f"there is no {absent[0]} on the path: apt-get install {PACKAGES}")
    login = getpass.getuser()
    memory, *others = _free_ports(2 + len(RINGS))
    ports = dict(zip((*RINGS, "proxy"), others, strict=True))
    (home / "disks" / "one").mkdir(parents=True)
    for ring in RINGS:
        builder = str(home / f"{ring}.builder")
        for words in ("create 4 1 0", f"add r1z1-127.0.0.1:{ports[ring]}/one 1", "rebalance", "write_ring"):
            subprocess.run(["swift-ring-builder", builder, *words.split()], check=True, capture_output=True)
    with ExitStack() as running:
        running.enter_context(
            _process(["memcached", "-u", login, "-l", "127.0.0.1", "-p", str(memory)], home / "memory.log")
        )
        for name, port in ports.items():
            text = (PROXY if name == "proxy" else STORAGE).format(
                name=name, port=port, memory=memory, home=home, login=login,
                account=ACCOUNT, name_there=USER, secret=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
            )  # fmt: skip
            (home / f"{name}.conf").write_text(text)
            running.enter_context(_process([f"swift-{name}-server", str(home / f"{name}.conf")], home / f"{name}.log"))
        address = f"127.0.0.1:{ports['proxy']}"
        _bucket(address)
        yield Server(address)


@contextmanager
def _process(command: list[str], log: Path) -> Iterator[None]:
    with log.open("wb") as file, subprocess.Popen(command, stdout=file, stderr=file) as process:
        try:
            yield
        finally:
            process.terminate()


def _free_ports(n: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(n)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _bucket(address: str) -> None:
    """Make the bucket once all four answer."""
    system = fs.S3FileSystem(endpoint_override=address, scheme="http", region="us-east-1", allow_bucket_creation=True)
    until = time.monotonic() + SECONDS
    while True:
        try:
            system.create_dir(BUCKET)
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.2)
