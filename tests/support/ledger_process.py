"""A labels party in a process of its own, to be killed, stopped and continued: as a replica, or again after a crash.

`Nursery` keeps one process that has imported everything and forks a `Child` in a moment. A child makes the calls of
`ledger_calls`; at a named fault point it may kill or stop itself.
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
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0
# so that a child has them at once; Arrow looks for pandas at its first value
LOADED = (
    "labels_party.companions.kinds.prediction.kind",
    "labels_party.companions.kinds.prediction.queries",
    "labels_party.companions.services",
    "labels_party.mechanisms.compiled",
    "labels_party.message.engine",
    "opendp.measurements",
    "pandas",
    "pyarrow.compute",
    "pyarrow.parquet",
    "tests.support.ledger_calls",
)


@dataclass(frozen=True)
class Start:
    """How a child starts: `kill` and `stop` name a fault point."""

    home: str
    url: str | None = None
    objects: str = ""
    host: str = ""  # a made-up one: leases of others are then kept by time alone
    lease_seconds: float = 30.0
    idle_seconds: int = 120
    kill: str = ""
    stop: str = ""


class Died(Exception):
    """The child was killed before it answered: what it did is not known."""


class Refused(Exception):
    """A typed refusal of the child's services."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code, self.detail = code, detail


class Child:
    def __init__(self, connection: socket.socket) -> None:
        self.lines = connection.makefile("rw")
        connection.close()
        self.pid = int(self.lines.readline())
        # a number alone may be another process's once this one is gone
        self.handle: int | None = os.pidfd_open(self.pid)
        self.lock, self.killed = threading.Lock(), False

    def call(self, name: str, *arguments: Any, key: str = "") -> Any:
        """Raises Refused or Died."""
        self.begin(name, *arguments, key=key)
        return self.answer()

    def begin(self, name: str, *arguments: Any, key: str = "") -> None:
        with contextlib.suppress(OSError):  # then there is no answer
            self.lines.write(json.dumps([name, key or name, list(arguments)]) + "\n")
            self.lines.flush()

    def answer(self) -> Any:
        try:
            line = self.lines.readline()
        except OSError:
            line = ""
        if not line.endswith("\n"):
            raise Died
        kind, *what = json.loads(line)
        if kind == "answer":
            return what[0]
        raise Refused(*what)

    def send(self, number: signal.Signals) -> None:
        with self.lock:
            self.killed |= number == signal.SIGKILL
            if self.handle is not None:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self.handle, number)

    def kill(self) -> None:
        self.send(signal.SIGKILL)
        with self.lock:
            if self.handle is not None:
                os.close(self.handle)
                self.handle = None
        with contextlib.suppress(OSError):
            self.lines.close()

    def kill_later(self, seconds: float) -> threading.Timer:
        timer = threading.Timer(seconds, self.send, [signal.SIGKILL])
        timer.start()
        return timer

    def stopped(self) -> bool:
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


class Nursery:
    def __enter__(self) -> Self:
        self.folder = tempfile.TemporaryDirectory()
        path = f"{self.folder.name}/socket"
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen()
        self.listener.settimeout(PATIENCE)
        command = [sys.executable, "-m", "tests.support.ledger_process", path]
        self.process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, text=True)
        self.children: list[Child] = []
        return self

    def __exit__(self, *_: object) -> None:
        for child in self.children:
            child.kill()
        self.process.kill()
        self.process.communicate()
        self.listener.close()
        self.folder.cleanup()

    def start(self, start: Start) -> Child:
        """Raises Refused where the services do not start, Died where they were killed meanwhile."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(asdict(start)) + "\n")
        self.process.stdin.flush()
        child = Child(self.listener.accept()[0])
        self.children.append(child)
        child.answer()
        return child


def _serve(path: str, start: Start) -> None:
    """What a child does until it is told no more."""
    from label_dp.errors import LabelDPError
    from label_dp.store import database
    from labels_party.bootstrap import bootstrap
    from labels_party.settings import Settings
    from tests.support.ledger_calls import Calls

    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    lines = connection.makefile("rw")

    def say(*what: Any) -> None:
        lines.write((json.dumps(what) if len(what) > 1 else str(what[0])) + "\n")
        lines.flush()

    signals = {start.kill: signal.SIGKILL, start.stop: signal.SIGSTOP}

    def fault(point: str) -> None:
        if point in signals:
            os.kill(os.getpid(), signals[point])

    say(os.getpid())
    if start.host:
        socket.gethostname = lambda: start.host
    now, then = (f"'{seconds}s'" for seconds in (database.IDLE_SECONDS, start.idle_seconds))
    database.READING, database.WRITING = (text.replace(now, then) for text in (database.READING, database.WRITING))
    where = {"home": start.home, "database_url": start.url, "objects": start.objects}
    settings = Settings(**where, lease_seconds=start.lease_seconds, worker=False)  # type: ignore[arg-type]  # pydantic converts
    try:
        calls = Calls(bootstrap(settings, faults=fault))
        say("answer", "ready")
    except LabelDPError as error:
        say("refused", error.code, error.detail)
        return
    for line in lines:
        name, key, arguments = json.loads(line)
        if name == "kill at":
            signals = dict.fromkeys(arguments, signal.SIGKILL)
            say("answer", None)
            continue
        try:
            say("answer", calls.call(name, key, arguments))
        except LabelDPError as error:
            say("refused", error.code, error.detail)


def main(path: str) -> None:
    for name in LOADED:
        importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the children
    for line in sys.stdin:
        if os.fork() == 0:
            try:
                _serve(path, Start(**json.loads(line)))
            finally:
                os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
