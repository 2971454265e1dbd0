"""Fetching and verifying a message beside a plain download of the same files from the same server, in fresh processes.

The message is 300 MB that no compression shortens, in one file and in three. The server sends files as the labels
party's service does. Clients take turns, so that what else a machine does harms all of them, and medians count. Starts
are not counted. The plain download makes its files durable as well.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.children import listening
from tests.benchmarks.lines import Line
from tests.support.messages import Sender

SIZE, ROUNDS = 300_000_000, 7
ROWS = 1_000_000
RELEASE = "rel_1"

SERVE = """
import sys
from pathlib import Path
import uvicorn
from fastapi import FastAPI
from fastapi.responses import FileResponse
from label_dp.http.connection import Connection
from label_dp.http.files import ServedFile

app, folder = FastAPI(), Path(sys.argv[1])

@app.get("/v1/releases/{release}")
def state(release: str) -> dict[str, str]:
    return {"state": "published"}

@app.get("/v1/releases/{release}/manifest")
def manifest(release: str) -> FileResponse:
    return FileResponse(folder / "manifest.dsse.json")

@app.get("/v1/releases/{release}/files/{name}")
def file(release: str, name: str) -> ServedFile:
    return ServedFile(folder / name, headers={"ETag": '"v1"'})

uvicorn.run(app, http=Connection, port=int(sys.argv[2]), ws="none", log_level="critical")
"""

# what each client does after its start, timed in its own process
TIMED = """
import json, os, sys, time
def timed(work):
    used, began = os.times(), time.perf_counter()
    work()
    took, now = time.perf_counter() - began, os.times()
    print(json.dumps([took, now.user + now.system + now.children_user + now.children_system - used.user - used.system]))
"""

HTTPX = """
import httpx
from pathlib import Path
url, out, *names = sys.argv[1:]
def work():
    with httpx.Client() as client:
        for name in names:
            where = f"{url}/v1/releases/rel_1/files/{name}"
            with client.stream("GET", where) as answer, Path(out, name).open("wb") as file:
                for piece in answer.iter_bytes():
                    file.write(piece)
                file.flush()
                os.fsync(file.fileno())
timed(work)
"""

CURL = """
import subprocess
url, out, *names = sys.argv[1:]
def work():
    for name in names:
        subprocess.run(["curl", "-sf", "-o", f"{out}/{name}", f"{url}/v1/releases/rel_1/files/{name}"], check=True)
timed(work)
"""

PULL = """
from pathlib import Path
from features_party.bootstrap import bootstrap
from features_party.receive.labels_service import LabelsService
from features_party.settings import Settings
url, out, key = sys.argv[1:]
services = bootstrap(Settings(home=Path(out, "home")))
services.pinned.pin(Path(key))
def work():
    with LabelsService(url) as labels:
        services.arrivals().bring(labels, "rel_1", lambda what, share: None)
timed(work)
"""


def lines(size: int = SIZE) -> list[Line]:
    found = []
    for parts in (1, 3):
        with tempfile.TemporaryDirectory() as name:
            found += _lines(Path(name), size, parts)
    return found


def _lines(folder: Path, size: int, parts: int) -> list[Line]:
    names, key = _message(folder / "there", size, parts)
    clients = {"httpx": (HTTPX, names), "pull": (PULL, [str(key)])}
    if shutil.which("curl"):
        clients["curl"] = (CURL, names)
    times: dict[str, list[list[float]]] = {client: [] for client in clients}
    with _server(folder / "there") as url:
        for turn in range(ROUNDS + 1):
            for client, (script, words) in clients.items():
                out = folder / f"{client}-{turn}"
                out.mkdir()
                used = _run(TIMED + script, url, out, *words)
                shutil.rmtree(out)
                if turn:  # in the first the server reads from the disk
                    times[client].append(used)
    wall, cpu = ({c: statistics.median(t[i] for t in took) for c, took in times.items()} for i in (0, 1))
    shown = f"{size / 1e6:.0f} MB in {parts} file{'s' * (parts > 1)}"
    found = []
    for what, figures in (("wall", wall), ("client's CPU", cpu)):
        ours, plain = figures["pull"], figures["httpx"]
        name = f"pull, {parts} file{'s' * (parts > 1)}, {what}"
        beside = f"a plain httpx download ({plain:.2f} s)"
        found.append(Line(name, ours, "s", beside, ours / plain, wanted_ratio=1.1, note=shown))
        if "curl" in figures:
            beside = f"curl ({figures['curl']:.2f} s), which verifies nothing"
            found.append(Line(f"{name}, curl", ours, "s", beside, ours / figures["curl"], note=shown))
    return found


def _message(folder: Path, size: int, parts: int) -> tuple[list[str], Path]:
    """Files of random bytes with a manifest that names them; a pull reads no further than their digests."""
    folder.mkdir()
    names = [f"message-{number:05d}.parquet" for number in range(parts)]
    for name in names:
        with (folder / name).open("wb") as file:
            for _ in range(size // parts >> 20):
                file.write(os.urandom(1 << 20))
    sender = Sender()

    def edit(document: Any) -> None:
        document["files"] = [
            sender._entry("message", name, folder / name, ROWS).model_dump(mode="json") for name in names
        ]
        document["n"] = ROWS * parts

    sender.write(folder / "small", ["a", "b"], np.zeros(2), parts=2, edit=edit)
    (folder / "small" / "manifest.dsse.json").rename(folder / "manifest.dsse.json")
    return names, sender.public_key(folder)


@contextmanager
def _server(folder: Path) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with subprocess.Popen([sys.executable, "-c", SERVE, str(folder), str(port)]) as process:
        try:
            listening(port)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def _run(script: str, *words: str | Path) -> list[float]:
    command: Sequence[str] = [sys.executable, "-c", script, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-500:])
    found: list[float] = json.loads(done.stdout.splitlines()[-1])
    return found
