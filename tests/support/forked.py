"""Both console commands as programs of a folder for PATH, forked by a process that has imported them.

A shell or a notebook runs them as a user does, without the start of Python. `serve` is the installed program.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
NAMES = {"labels-party": "labels_party.cli", "features-party": "features_party.cli"}
# what the commands import when they are run
HEAVY = (
    "labels_party.bootstrap",
    "labels_party.files",
    "features_party.bootstrap",
    "features_party.files",
    "features_party.training.fitting",
    "alembic.command",
    "highspy",
    "opendp.measurements",
    "pyarrow.parquet",
    "xgboost",
)
PROGRAM = f"""#!{sys.executable} -IS
import json, os, socket, sys
name = os.path.basename(sys.argv[0])
if sys.argv[1:2] == ["serve"]:
    os.execv("{BIN}/" + name, [name, *sys.argv[1:]])
line = socket.socket(socket.AF_UNIX)
line.connect(os.path.dirname(sys.argv[0]) + "/socket")
socket.send_fds(line, [b"."], [0, 1, 2])
line.sendall(json.dumps([[name, *sys.argv[1:]], os.getcwd(), dict(os.environ)]).encode())
line.shutdown(socket.SHUT_WR)
sys.exit(int(line.recv(8) or 70))
"""


@contextlib.contextmanager
def forked_commands() -> Iterator[Path]:
    """The folder of the two programs; they end with it."""
    with tempfile.TemporaryDirectory() as name:
        for command in NAMES:
            (Path(name) / command).write_text(PROGRAM)
            (Path(name) / command).chmod(0o755)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(f"{name}/socket")
            listener.listen(64)
            words = [sys.executable, "-c", f"from tests.support.forked import main; main({listener.fileno()})"]
            process = subprocess.Popen(words, cwd=ROOT, stdin=subprocess.DEVNULL, pass_fds=[listener.fileno()])
        try:
            yield Path(name)
        finally:
            process.kill()
            process.wait()


def _run(line: socket.socket) -> int:
    """One command, as its caller asked for it; returns its exit code."""
    _, descriptors, *_ = socket.recv_fds(line, 1, 3)
    with line.makefile() as asked:
        sys.argv, folder, environment = json.load(asked)
    for target, descriptor in enumerate(descriptors):
        os.dup2(descriptor, target)
        os.close(descriptor)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115 - for its life
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    try:
        importlib.import_module(NAMES[sys.argv[0]]).main()
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def main(descriptor: int) -> None:
    listener = socket.socket(fileno=descriptor)
    for name in (*NAMES.values(), *HEAVY):
        importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the children
    while True:
        line, _ = listener.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            code = _run(line)
            sys.stdout.flush()
            sys.stderr.flush()
            line.sendall(str(code).encode())
            os._exit(0)
        line.close()
