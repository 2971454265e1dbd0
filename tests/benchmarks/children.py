"""Commands as children, and what they used."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

BIN = Path(sys.executable).parent

# a process that holds nothing: the peak of a child begins at what the process that started it holds
WAIT = """
import json, os, sys, threading, time

def watch():
    try:
        while lines := [line for line in open(f"/proc/{pid}/status") if line.startswith("RssAnon:")]:
            own.append(max(own.pop(), int(lines[0].split()[1])))
            time.sleep(0.05)
    except OSError:
        pass

own = [0]
start = time.perf_counter()
pid = os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ)
threading.Thread(target=watch, daemon=True).start()
_, status, used = os.wait4(pid, 0)
took = time.perf_counter() - start
print(json.dumps([os.waitstatus_to_exitcode(status), took, used.ru_utime + used.ru_stime, used.ru_maxrss, own[0]]))
"""


def listening(port: int) -> None:
    """Wait until a child listens there."""
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            time.sleep(0.05)


class Used(NamedTuple):
    """Seconds by the clock, seconds of CPU, and the most MiB that were resident at once: of all memory, and of what
    belongs to no file (looked at every twentieth of a second; 0 where the system does not tell)."""

    wall: float
    cpu: float
    peak: float
    anonymous: float


def measured(command: Sequence[str | Path], env: Mapping[str, str] | None = None) -> Used:
    """What a command used, its start included. Raises RuntimeError where it fails."""
    words = [sys.executable, "-I", "-S", "-c", WAIT, *map(str, command)]
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=os.environ | dict(env or {}))
    code, wall, cpu, peak, anonymous = json.loads(done.stdout.splitlines()[-1])
    if code:
        raise RuntimeError(f"{command[0]} failed: {done.stderr[-500:]}")
    return Used(wall, cpu, peak / (1024 if sys.platform == "linux" else 1024 * 1024), anonymous / 1024)
