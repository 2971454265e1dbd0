"""What may happen to tasks: they fail, die with their process or their executor, or go on after they have lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LATE = """
import pathlib, sys, time
folder, tries = pathlib.Path(sys.argv[1]), 600
while folder.exists() and (tries := tries - 1):
    time.sleep(0.05)
try:
    (folder / "late.parquet").write_bytes(b"late")
except OSError as error:
    pathlib.Path(sys.argv[2]).write_text(type(error).__name__)
else:
    pathlib.Path(sys.argv[2]).write_text("written")
"""


@dataclass(frozen=True)
class Faulty:
    """A task whose first attempt at each piece fails `how`, after its file was written. `notes`: a folder that tells
    which pieces had an attempt already."""

    task: Any
    notes: str
    how: str
    name: str = ""
    pieces: tuple[int, ...] = ()  # that fail; all of them where none is named

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        for record in self.task(batches):
            if self._first(record.column(0)[0].as_py()):
                self._fail()
            yield record

    def _first(self, number: int) -> bool:
        if self.pieces and number not in self.pieces:
            return False
        try:
            (Path(self.notes) / f"{self.name or self.how}-{number}").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def _fail(self) -> None:
        if self.how == "exception":
            raise RuntimeError("after the file was written")
        if self.how == "exit":
            os._exit(1)
        if self.how == "executor":
            executor = _parent_of(os.getppid())  # the daemon's parent
            command = Path(f"/proc/{executor}/cmdline").read_text(encoding="utf-8")
            (Path(self.notes) / f"killed-{executor}").write_text(command, encoding="utf-8")
            os.kill(executor, signal.SIGKILL)
            time.sleep(60)
        if self.how == "slow":  # a second attempt of it is started and wins
            time.sleep(60)


@dataclass(frozen=True)
class Wrong:
    """A task whose every piece raises `error`, whose text quotes what it read."""

    task: Any
    error: Exception

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        def one(_number: int) -> Any:
            raise self.error

        object.__setattr__(self.task, "one", one)
        return self.task(batches)  # type: ignore[no-any-return]  # tasks yield record batches


@dataclass(frozen=True)
class Lingering:
    """A task that leaves a process behind, which writes into its folder once that is gone, and notes how it went."""

    task: Any
    notes: str

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        arguments = [self.task.staging, f"{self.notes}/late-{os.getpid()}-{time.monotonic_ns()}"]
        subprocess.Popen([sys.executable, "-c", LATE, *arguments], start_new_session=True)
        yield from self.task(batches)


def _parent_of(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return int(fields[1])
