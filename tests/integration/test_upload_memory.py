"""Uploads of any size in bounded memory: a served process takes millions of rows and stays small."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.benchmarks.bench_intake import Server
from tests.support.desk import Desk
from tests.support.upload_formats import ARROW, CSV, JSON, NDJSON, PARQUET, table_body

GROWTH = 300 << 20
ROWS = 1_000_000
BATCH = 1 << 16

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc"),
]


class Watched:
    """A served labels party and the most memory of its own (not of mapped files) that it had in a span of time."""

    def __init__(self, home: Path) -> None:
        self.server = Server(home, None)
        self.url = f"http://127.0.0.1:{self.server.port}"

    def now(self) -> int:
        status = Path(f"/proc/{self.server.process.pid}/status").read_text()
        return int(status.split("RssAnon:")[1].split()[0]) << 10

    def peak(self, work: Callable[[], Any]) -> int:
        most, done = [self.now()], threading.Event()

        def look() -> None:
            while not done.wait(0.005):
                most[0] = max(most[0], self.now())

        thread = threading.Thread(target=look)
        thread.start()
        try:
            work()
        finally:
            done.set()
            thread.join()
        return most[0]

    def send(self, content: Iterator[bytes] | bytes, kind: str) -> httpx.Response:
        headers = {"authorization": f"Bearer {self.server.key}", "content-type": kind}
        return httpx.post(self.url + self.server.open(), content=content, headers=headers, timeout=300)


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    found = Watched(tmp_path / "home")
    yield found
    found.server.process.terminate()
    found.server.process.wait(30)


def batches(rows: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, rows, BATCH):
        numbers = pa.array(range(start, min(start + BATCH, rows)))
        ids = pc.binary_join_element_wise("click", pc.utf8_lpad(numbers.cast(pa.string()), 10, "0"), "-")
        labels = pc.cast(pc.bit_wise_and(numbers, 255), pa.float64())
        yield pa.record_batch([ids, labels], names=["example_id", "label"])


class _Sink:
    """What was written since the last look."""

    closed = False

    def __init__(self) -> None:
        self.data = bytearray()

    def write(self, data: bytes) -> int:
        self.data += data
        return len(data)

    def flush(self) -> None:
        pass

    def take(self) -> bytes:
        found = bytes(self.data)
        self.data.clear()
        return found


def written(rows: int, kind: str) -> Iterator[bytes]:
    sink = _Sink()
    file = pa.PythonFile(sink, mode="w")
    schema = pa.schema([("example_id", pa.string()), ("label", pa.float64())])
    if kind == PARQUET:
        writer = pq.ParquetWriter(file, schema, compression="zstd")
    else:
        writer = pa.ipc.new_stream(file, schema, options=pa.ipc.IpcWriteOptions(compression="lz4"))
    for batch in batches(rows):
        writer.write_batch(batch)
        yield sink.take()
    writer.close()
    yield sink.take()


def text(rows: int, kind: str) -> Iterator[bytes]:
    shape = "%s,%d\n" if kind == CSV else '{"example_id":"%s","label":%d}' + ("\n" if kind == NDJSON else ",")
    yield {CSV: b"example_id,label\n", JSON: b'{"records":['}.get(kind, b"")
    for batch in batches(rows - 1):
        columns = (column.to_pylist() for column in batch.columns)
        yield "".join(shape % pair for pair in zip(*columns, strict=True)).encode()
    yield (shape % ("last", 1)).rstrip(",").encode() + (b"]}" if kind == JSON else b"")


def test_memory_does_not_grow_with_the_upload(watched: Watched) -> None:
    for kind in (ARROW, PARQUET, NDJSON, CSV, JSON):  # kernels, readers and threads are loaded once
        make = written if kind in (ARROW, PARQUET) else text
        assert watched.send(make(100_000, kind), kind).status_code == 200
    start = watched.now()
    for kind, rows in ((ARROW, 6 * ROWS), (PARQUET, ROWS), (NDJSON, ROWS // 2), (CSV, ROWS // 2), (JSON, ROWS // 2)):
        make = written if kind in (ARROW, PARQUET) else text
        answers: list[httpx.Response] = []
        peak = watched.peak(lambda: answers.append(watched.send(make(rows, kind), kind)))  # noqa: B023 - called at once
        assert answers[0].json().get("accepted") == rows, answers[0].text
        print(f"{kind}: {rows:,} rows, {(peak - start) >> 20} MiB more than before")
        assert peak - start < GROWTH, kind


# --- hostile bodies ----------------------------------------------------------------------------------------


def _compressed_bomb() -> bytes:
    """A record batch whose buffers decompress to gigabytes."""
    table = pa.table({"example_id": ["x" * (1 << 27)], "label": [1.0]})
    return table_body("arrow", table, compression="zstd")


def _patched(offset_of: bytes, value: bytes, compression: str | None = None) -> bytes:
    good = table_body("arrow", pa.table({"example_id": ["a" * 300] * 64, "label": [1.0] * 64}), compression=compression)
    head, found, tail = good.rpartition(offset_of)
    assert found
    return head + value + tail


def _arrow(ids: Any, labels: Any) -> bytes:
    return table_body("arrow", pa.table({"example_id": ids, "label": labels}))


def _long_dictionary() -> bytes:
    ids = pa.DictionaryArray.from_arrays(pa.array([0] * 60_000), ["x" * 10_000_000])
    return _arrow(ids, [1] * 60_000)


SIZE, HUGE = struct.pack("<q", 300 * 64), struct.pack("<q", 1 << 60)
MESSAGE = b"\xff\xff\xff\xff"
HOSTILE: list[tuple[str, Callable[[], bytes], str, str]] = [
    ("zstd bomb", _compressed_bomb, ARROW, "too-large"),
    ("declared size", lambda: _patched(SIZE, HUGE, "lz4"), ARROW, "too-large"),
    ("metadata length", lambda: MESSAGE + struct.pack("<i", 0x7FFFFFFF) + b"x" * 100, ARROW, "invalid-file"),
    ("negative metadata", lambda: MESSAGE + struct.pack("<i", -1) + b"x" * 100, ARROW, "invalid-file"),
    ("a file, not a stream", lambda: b"ARROW1\0\0" + b"x" * 100, ARROW, "invalid-file"),
    ("no rows", lambda: _arrow(pa.array([], pa.string()), pa.array([], pa.int8())), ARROW, "invalid-file"),
    ("something after the end", lambda: _arrow(["a"], [1]) + b"x", ARROW, "invalid-file"),
    ("a batch of nulls", lambda: _arrow(pa.nulls(1 << 23), pa.nulls(1 << 23)), ARROW, "invalid-table"),
    ("nested types", lambda: _arrow(["a"], pa.array([[{"a": 1}]])), ARROW, "invalid-table"),
    ("long dictionary", _long_dictionary, ARROW, "too-large"),
    ("giant string", lambda: _arrow(["x" * 50_000_000], [1]), ARROW, "invalid-rows"),
    ("deep json", lambda: b'{"records":[' + b'{"a":' * 400_000, JSON, "invalid-file"),
    ("deep json list", lambda: b'{"records":' + b"[" * 20_000_000, JSON, "invalid-file"),
    ("one long string", lambda: b'{"records":[{"example_id":"' + b"x" * 40_000_000, JSON, "invalid-file"),
    ("a quote that never ends", lambda: b'example_id,label\n"' + b"x\n" * 5_000_000, CSV, "invalid-file"),
    ("a header that never ends", lambda: b"example_id,label" + b"x" * 40_000_000, CSV, "invalid-file"),
    ("commas only", lambda: b"example_id,label\n" + b"," * 30_000_000, CSV, "invalid-file"),
    ("line breaks only", lambda: b"\n" * 10_000_000, NDJSON, "invalid-file"),
]


@pytest.mark.parametrize(("make", "kind", "code"), [h[1:] for h in HOSTILE], ids=[h[0] for h in HOSTILE])
def test_hostile_bodies_are_refused_soon_and_small(make: Callable[[], bytes], kind: str, code: str, desk: Desk) -> None:
    body, before = make(), desk.state()
    pa.default_memory_pool().release_unused()
    held = pa.total_allocated_bytes()
    start = time.process_time()
    answer = desk.labels(body, kind)
    took = time.process_time() - start
    assert answer.status_code in (413, 422), answer.text
    assert answer.json()["code"] == code, answer.text
    assert took < 10
    assert pa.total_allocated_bytes() - held < 1 << 20, "what was decoded is freed"
    assert desk.state() == before


def test_a_large_parquet_upload_lies_on_disk_encrypted_only(desk: Desk) -> None:
    """Raw labels never touch a disk (invariant budget-outlives-labels): what is spooled cannot be read without a key
    that is in memory."""
    from labels_party.labels.spool import IN_MEMORY, Spool

    plain = b"".join(b"label-731946-%09d;" % i for i in range(IN_MEMORY // 20 + 50_000))
    with Spool(desk.party.home / "spill") as spool:
        for begin in range(0, len(plain), 1_000_003):
            spool.add(plain[begin : begin + 1_000_003])
        with open(f"/proc/self/fd/{spool._file}", "rb") as raw:  # noqa: PTH123 - an unnamed file
            on_disk = raw.read()
        assert len(on_disk) > IN_MEMORY
        assert b"731946" not in on_disk
        assert list((desk.party.home / "spill").iterdir()) == [], "it has no name either"
        for start, size in ((0, 10), (15, 33), (16, 16), (1_000_001, 7), (len(plain) - 5, 50), (len(plain), 4)):
            spool.seek(start)
            assert spool.read(size) == plain[start : start + size]
        spool.seek(-9, 2)
        assert spool.read() == plain[-9:]
