"""Small calls of `labels-party serve` beside a plain FastAPI POST on the same core, in the same run, by `wrk` over 64
connections. Without `wrk` this part says so and measures nothing."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from tests.benchmarks.bench_events import event, opened
from tests.benchmarks.bench_intake import CONNECTIONS, JSON, cpu_of, first_core, serving
from tests.benchmarks.children import listening
from tests.benchmarks.lines import Line

SECONDS, ROUNDS = 3, 3
NUMBER = 987654321  # of a body, in whose place each call has another one

PLAIN = """
import sys
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

class Record(BaseModel):
    example_id: str
    label: float

class Records(BaseModel):
    records: list[Record]

app = FastAPI()

@app.post("/labels")
async def add(body: Records) -> dict[str, int]:
    return {"accepted": len(body.records)}

uvicorn.run(app, http=sys.argv[2], loop="asyncio", port=int(sys.argv[1]), ws="none", log_level="critical")
"""

LUA = """
local n = 0
request = function()
  n = n + 1
  local body = string.gsub([[BODY]], "NUMBER", "FIRST-" .. n)
  return wrk.format(METHOD, nil, {["Content-Type"] = "TYPE", ["Authorization"] = "Bearer KEY"}, body)
end
"""


class Load(NamedTuple):
    """What `wrk` saw: calls a second, milliseconds within which 99 of 100 came; the server's CPU in µs a call."""

    rate: float
    late: float
    cpu: float


def load(pid: int, url: str, method: str, body: str = "", key: str = "") -> Load:
    """The median of some rounds. Raises RuntimeError where a call failed."""
    rounds = [_round(pid, url, method, body, key) for _ in range(ROUNDS)]
    return Load(*(sorted(figures)[ROUNDS // 2] for figures in zip(*rounds, strict=True)))


def _round(pid: int, url: str, method: str, body: str, key: str) -> Load:
    script = LUA.replace("METHOD", json.dumps(method)).replace("TYPE", JSON).replace("KEY", key)
    script = script.replace("BODY", body.replace(str(NUMBER), "NUMBER")).replace("FIRST", str(time.time_ns()))
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as file:
        file.write(script)
        file.flush()
        command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{SECONDS}s", "--latency", "-s", file.name, url]
        before = cpu_of(pid)
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        used = cpu_of(pid) - before
    late = re.search(r"99%\s+([\d.]+)(us|ms|s)\b", said)
    count, rate = re.search(r"(\d+) requests in", said), re.search(r"Requests/sec:\s+([\d.]+)", said)
    if "Non-2xx" in said or "Socket errors" in said or not (late and count and rate):
        raise RuntimeError(said)
    milliseconds = float(late[1]) * {"us": 1e-3, "ms": 1.0, "s": 1e3}[late[2]]
    return Load(float(rate[1]), milliseconds, 1e6 * used / int(count[1]))


@contextmanager
def plain(parser: str) -> Iterator[tuple[int, str]]:
    """The process and address of a plain POST of one label, under uvicorn with a parser of its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    core = first_core()
    with subprocess.Popen([sys.executable, "-c", PLAIN, str(port), parser]) as process:
        if core is not None:
            os.sched_setaffinity(process.pid, {core})
        try:
            listening(port)
            yield process.pid, f"http://127.0.0.1:{port}/labels"
        finally:
            process.terminate()


def lines() -> list[Line]:
    """Calls a second, their CPU and the latest of a hundred, of `/healthz`, single labels and single events."""
    if shutil.which("wrk") is None:
        return [Line("nothing was measured", 0.0, "", note="`wrk` is not installed: apt-get install wrk")]
    label = json.dumps({"records": [{"example_id": f"c{NUMBER}", "label": 3}]})
    with plain("httptools") as (pid, url):
        beside = load(pid, url, "POST", label)
    found = [Line("a plain FastAPI POST", beside.rate, "calls/s", note=f"{beside.cpu:.0f} µs of CPU")]
    with serving() as server:
        opened(server)
        pid, base, path = server.process.pid, f"http://127.0.0.1:{server.port}", server.open()
        calls = {
            "/healthz": load(pid, f"{base}/healthz", "GET"),
            "single labels": load(pid, base + path, "POST", label, server.key),
            "single events": load(pid, f"{base}/v1/events", "POST", json.dumps(event(NUMBER)), server.key),
        }
    for name, ours in calls.items():
        note = f"{CONNECTIONS} connections, {ours.cpu:.0f} µs of CPU"
        other = f"a plain FastAPI POST ({beside.rate:,.0f}/s)"
        found.append(Line(name, ours.rate, "calls/s", other, ours.rate / beside.rate, more=True, note=note))
        other = f"a plain FastAPI POST ({beside.late:.0f} ms)"
        found.append(Line(f"{name}, 99 of 100 within", ours.late, "ms", other, ours.late / beside.late))
    return found
