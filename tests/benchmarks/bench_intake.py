"""Labels intake through `labels-party serve` on a loopback port: the server pinned to one core, clients elsewhere."""

from __future__ import annotations

import asyncio
import http.client
import io
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from tests.benchmarks.lines import Line

BIN = Path(sys.executable).parent
CLIENTS = 8
UPLOADS, SMALL = 600, 1_000
CONNECTIONS, SINGLES = 64, 6_000
STREAMED, BATCH = 4_000_000, 65_536
ROUNDS = 3
JSON, ARROW = "application/json", "application/vnd.apache.arrow.stream"


class Server:
    def __init__(self, home: Path, core: int | None) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        env = os.environ | {"LABELS_PARTY_HOME": str(home), "LABELS_PARTY_PORT": str(self.port)}
        env |= dict.fromkeys(("OMP_NUM_THREADS", "ARROW_NUM_THREADS"), "1")
        made = subprocess.run(
            [BIN / "labels-party", "apikey", "create", "--role", "owner", "--json"],
            env=env, check=True, capture_output=True, text=True,
        )  # fmt: skip
        self.key = json.loads(made.stdout)["key"]
        self.process = subprocess.Popen([BIN / "labels-party", "serve"], env=env, stderr=subprocess.DEVNULL)
        if core is not None:
            os.sched_setaffinity(self.process.pid, {core})
        while True:
            try:
                self.call("GET", "/healthz")
                return
            except OSError:
                time.sleep(0.05)

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)

    def send(
        self, to: http.client.HTTPConnection, method: str, path: str, body: object = None, kind: str = JSON
    ) -> dict[str, object]:
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": kind}
        to.request(method, path, body=body, headers=headers, encode_chunked=not isinstance(body, bytes | None))
        answer = to.getresponse()
        text = answer.read()
        assert answer.status < 300, text
        found: dict[str, object] = json.loads(text)
        return found

    def call(self, method: str, path: str, body: object = None) -> dict[str, object]:
        return self.send(self.connect(), method, path, None if body is None else json.dumps(body).encode())

    def open(self) -> str:
        name = f"p{time.monotonic_ns()}"
        population = {"name": name, "label": name, "domain": "0:400", "lifetime_epsilon": "1"}
        shop = self.call("POST", "/v1/populations", population)["id"]
        batch = self.call("POST", f"/v1/populations/{shop}/batches", {"presence": "public"})["id"]
        return f"/v1/batches/{batch}/labels"

    def cpu(self) -> float:
        return cpu_of(self.process.pid)


def cpu_of(pid: int) -> float:
    """Seconds of CPU that a process has used; zero where the system does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / float(os.sysconf("SC_CLK_TCK"))


def first_core() -> int | None:
    """The core for a server, so that clients have the others; None where there is but one, or nobody tells."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return cores[0] if len(cores) > 1 else None


@contextmanager
def serving() -> Iterator[Server]:
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder), first_core())
        try:
            yield server
        finally:
            server.process.terminate()
            server.process.wait(30)


def small_bodies(prefix: str) -> list[bytes]:
    rows = range(SMALL)
    return [
        json.dumps({"records": [{"example_id": f"{prefix}-{u:05d}-{i:05d}", "label": i % 401} for i in rows]}).encode()
        for u in range(UPLOADS)
    ]


def at_once(server: Server, path: str, bodies: list[bytes]) -> None:
    """All bodies over CLIENTS connections that are kept alive."""
    waiting = iter(bodies)
    lock = threading.Lock()

    def client() -> None:
        connection = server.connect()
        while True:
            with lock:
                body = next(waiting, None)
            if body is None:
                return
            server.send(connection, "POST", path, body)

    threads = [threading.Thread(target=client) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def one_label(number: int) -> bytes:
    return json.dumps({"records": [{"example_id": f"{number}", "label": number % 401}]}).encode()


async def one_by_one(
    server: Server, path: str, *, keyed: bool, body_of: Callable[[int], bytes] = one_label
) -> list[float]:
    """SINGLES uploads of one label over CONNECTIONS connections that are kept alive; seconds until each answer."""
    numbers, took = iter(range(SINGLES)), list[float]()

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        for number in numbers:
            body = body_of(number)
            key = f"Idempotency-Key: {path}-{number}\r\n" if keyed else ""
            head = f"POST {path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {server.key}\r\n{key}"
            start = time.perf_counter()
            writer.write(f"{head}Content-Type: {JSON}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
            answer = (await reader.readuntil(b"\r\n\r\n")).lower()
            assert answer.startswith(b"http/1.1 200"), answer
            await reader.readexactly(int(answer.partition(b"content-length:")[2].split(b"\r\n")[0]))
            took.append(time.perf_counter() - start)
        writer.close()

    await asyncio.gather(*(client() for _ in range(CONNECTIONS)))
    return sorted(took)


def singles(server: Server) -> list[Line]:
    found = []
    alone = timed(lambda: asyncio.run(health(server)))
    beside = f"/healthz over as many connections ({SINGLES / alone:,.0f} a second)"
    for keyed in (False, True):
        name = "single labels with a key each" if keyed else "single labels"
        before, start = server.cpu(), time.perf_counter()
        took = asyncio.run(one_by_one(server, server.open(), keyed=keyed))
        wall, cpu = time.perf_counter() - start, server.cpu() - before
        note = (
            f"{CONNECTIONS} connections, median {1e3 * took[SINGLES // 2]:.0f} ms, {SINGLES / cpu:,.0f} a second of CPU"
        )
        late = 1e3 * took[SINGLES * 99 // 100]
        found.append(Line(name, SINGLES / wall, "uploads/s", beside, alone / wall, 2000.0, more=True, note=note))
        found.append(Line(f"{name}, 99 of 100 within", late, "ms", beside, wanted=100.0))
    return found


async def health(server: Server) -> None:
    numbers = iter(range(SINGLES))

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        for _ in numbers:
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: bench\r\n\r\n")
            answer = (await reader.readuntil(b"\r\n\r\n")).lower()
            await reader.readexactly(int(answer.partition(b"content-length:")[2].split(b"\r\n")[0]))
        writer.close()

    await asyncio.gather(*(client() for _ in range(CONNECTIONS)))


def arrow_stream() -> bytes:
    """Ids of 14 bytes and whole-number labels, made batch by batch."""
    import pyarrow.compute as pc

    schema = pa.schema([("example_id", pa.string()), ("label", pa.float64())])
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, schema) as writer:
        for start in range(0, STREAMED, BATCH):
            numbers = pa.array(range(start, min(start + BATCH, STREAMED)))
            ids = pc.binary_join_element_wise("click", pc.utf8_lpad(numbers.cast(pa.string()), 8, "0"), "-")
            labels = pc.cast(pc.bit_wise_and(numbers, 255), pa.float64())
            writer.write_batch(pa.record_batch([ids, labels], schema=schema))
    return sink.getvalue()


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def pieces(data: bytes) -> Iterator[memoryview]:
    view = memoryview(data)
    for start in range(0, len(view), 1 << 18):
        yield view[start : start + (1 << 18)]


def read_all(data: bytes) -> None:
    with pa.ipc.open_stream(data) as reader:
        for batch in reader:
            batch.validate(full=True)


def lines() -> list[Line]:
    """Labels per second that are accepted, durable and answered; and against reading the same bytes alone."""
    found = []
    stream = arrow_stream()
    with serving() as server:
        at_once(server, server.open(), small_bodies("warm"))  # enough rows for the compiled kernels to be loaded
        bodies = small_bodies("click")
        before = server.cpu()
        took = timed(lambda: at_once(server, server.open(), bodies))
        cpu = server.cpu() - before
        alone = timed(lambda: [json.loads(body) for body in bodies])
        labels = UPLOADS * SMALL
        note = f"{UPLOADS} uploads of {SMALL:,}, {CLIENTS} connections, server on one core"
        found += _speeds(
            "JSON", labels / 1e3, "k labels/s", took, cpu, alone, f"json.loads alone ({alone:.2f} s)", note
        )

        found += singles(server)

        def upload() -> None:
            server.send(server.connect(), "POST", server.open(), pieces(stream), ARROW)

        upload()  # a service that has been up for a while: every kernel loaded, every file of code read
        before = server.cpu()
        took = min(timed(upload) for _ in range(ROUNDS))
        cpu = (server.cpu() - before) / ROUNDS
        alone = min(timed(lambda: read_all(stream)) for _ in range(ROUNDS))
        note = f"streams of {STREAMED / 1e6:.0f} M, best of {ROUNDS}, server on one core"
        beside = f"pyarrow reading it alone ({alone:.2f} s)"
        found += _speeds("Arrow", STREAMED / 1e6, "M labels/s", took, cpu, alone, beside, note)
    return found


def _speeds(
    form: str, labels: float, unit: str, took: float, cpu: float, alone: float, beside: str, note: str
) -> list[Line]:
    """Of `labels` in `took` seconds and, where the system tells it, in `cpu` seconds of the server's CPU."""
    wanted, used = {"JSON": 200.0, "Arrow": 5.0}[form], cpu or took
    by_wall = Line(form, labels / took, unit, beside, alone / took, more=True, note=note)
    by_cpu = Line(f"{form}, by the server's CPU", labels / used, unit, beside, alone / used, wanted, more=True)
    return [by_wall, by_cpu] if cpu else [by_wall]
