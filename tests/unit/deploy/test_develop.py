"""`make develop`: a changed source file starts the service again, another file does not; nothing outlives the end."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import pytest

from deploy.demo import develop

SERVICE = "import os, pathlib, sys, time; pathlib.Path(sys.argv[1], str(os.getpid())).touch(); time.sleep(60)"


def await_starts(folder: Path, count: int) -> list[int]:
    end = time.monotonic() + 20
    while len(started := [int(path.name) for path in folder.iterdir()]) < count and time.monotonic() < end:
        time.sleep(0.02)
    return started


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.processes
def test_a_changed_source_starts_it_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(develop, "LOOK_SECONDS", 0.02)
    sources, starts, stop = tmp_path / "sources", tmp_path / "starts", threading.Event()
    sources.mkdir()
    starts.mkdir()
    (sources / "module.py").write_text("one = 1\n")
    command = [sys.executable, "-c", SERVICE, str(starts)]
    loop = threading.Thread(target=develop.serve_again, args=(command, dict(os.environ), [sources], stop.is_set))
    loop.start()
    try:
        (first,) = await_starts(starts, 1)
        (sources / "notes.txt").write_text("no source\n")
        time.sleep(0.2)
        assert await_starts(starts, 1) == [first]
        (sources / "module.py").write_text("one = 11\n")
        second = set(await_starts(starts, 2)) - {first}
        assert len(second) == 1
        assert not alive(first)
    finally:
        stop.set()
        loop.join(20)
    assert not any(alive(process) for process in await_starts(starts, 2))
