"""Small files of a stranger that become gigabytes where a reader believes them, and a process that reads them while
its memory is measured: `python -m tests.support.swelling FOLDER READER`."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from label_dp.errors import LabelDPError
from tests.support.hostile_parquet import LONG, chunk, closed, written
from tests.support.tampering import footer_of
from tests.support.thrift_forge import BINARY, I32, I64, LIST, STRUCT, Reading, varint, write_struct, zigzag

MIB = 1 << 20
ROWS = 1 << 13
ID, COLUMN = "example_id", "label"


def ids(count: int = ROWS) -> pa.Array:
    return pa.array([f"{i:08d}" for i in range(count)])


def swelling() -> Iterator[tuple[str, bytes]]:
    """(what it is, a file with the columns example_id and label)."""
    one = pa.DictionaryArray.from_arrays(pa.array(np.zeros(ROWS, np.int32)), pa.array(["1" * LONG]))
    dictionary: dict[str, Any] = {"dictionary_pagesize_limit": 1 << 30, "store_schema": False}
    long_texts = pa.table({ID: ids(), COLUMN: one})
    yield "a long text in a dictionary", written(long_texts, use_dictionary=[COLUMN], **dictionary)
    long_ids = pa.table({ID: one, COLUMN: np.ones(ROWS)})
    yield "long ids in a dictionary", written(long_ids, use_dictionary=[ID], **dictionary)
    yield "a long text among short ones", among_short()
    shared = pa.table({ID: ids(4096), COLUMN: pa.array(["1" * (1 << 16)] * 4096)})
    how: dict[str, Any] = {"column_encoding": {COLUMN: "DELTA_BYTE_ARRAY", ID: "PLAIN"}, "use_dictionary": False}
    yield "shared beginnings", written(shared, **how)
    for encoding in ("DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"):
        yield f"{encoding} that claims two billion lengths", claimed_lengths(encoding)
    nothing = pa.table({ID: pa.nulls(1 << 24, pa.string()), COLUMN: pa.nulls(1 << 24, pa.string())})
    yield "rows of nothing", written(nothing, row_group_size=1 << 26)
    numbers = pa.table({ID: pa.array(np.zeros(1 << 24, np.int64)), COLUMN: np.zeros(1 << 24)})
    yield "rows of one number", written(numbers, use_dictionary=True, row_group_size=1 << 26)
    pages = pa.table({ID: ids(12), COLUMN: pa.array(["1" * (1 << 24)] * 12)})
    for codec in ("snappy", "gzip", "brotli", "zstd", "lz4"):
        yield f"pages of {codec}", written(pages, use_dictionary=False, compression=codec)
    wide = {f"c{i}": pa.array(["1" * (1 << 23)]) for i in range(24)}
    yield "a row of long texts", written(pa.table({ID: ids(1), COLUMN: ["1"], **wide}), use_dictionary=False)
    lists = pa.ListArray.from_arrays(pa.array([0, ROWS], pa.int32()), one)
    listed = pa.table({ID: ids(1), COLUMN: ["1"], "l": lists})
    yield "a list of long texts", written(listed, use_dictionary=True, **dictionary)
    yield "one row group a thousand times", repeated()
    yield "a column in another file", elsewhere()
    yield "levels of billions", with_rows((1 << 31) - 1)


def among_short() -> bytes:
    """A dictionary of a hundred thousand short texts and one of half a megabyte, which all rows name."""
    texts = pa.array([f"{i}" for i in range(100_000)] + ["1" * (1 << 19)])
    values = pa.DictionaryArray.from_arrays(pa.array(np.full(ROWS * 4, 100_000, np.int32)), texts)
    made = pa.table({ID: ids(ROWS * 4), COLUMN: values})
    return written(made, use_dictionary=[COLUMN], dictionary_pagesize_limit=1 << 30, store_schema=False)


def claimed_lengths(encoding: str) -> bytes:
    """600 bytes: one block of differences that says it has 2³¹ lengths of no bits each."""
    schema = pa.schema([pa.field(name, pa.string(), nullable=False) for name in (ID, COLUMN)])
    made = pa.table([ids(4), pa.array(["1"] * 4)], schema=schema)
    data = written(made, use_dictionary=False, column_encoding={COLUMN: encoding, ID: "PLAIN"}, compression="none")
    body, footer = footer_of(data)
    meta = Reading(footer).struct()
    about = chunk(meta, 1)
    reading = Reading(data, about[9][1])
    header = reading.struct()
    block, many = 1 << 27, (1 << 31) - 1
    page = varint(block) + varint(1) + varint(many) + zigzag(1) + (zigzag(0) + b"\0") * (many // block + 1) + b"1" * 99
    header |= {2: (I32, len(page)), 3: (I32, len(page))}
    laid = write_struct(header) + page
    about |= {9: (I64, len(body)), 7: (I64, len(laid)), 6: (I64, len(laid))}
    return closed(body + laid, meta)


def repeated() -> bytes:
    data = written(pa.table({ID: ids(), COLUMN: pa.array(["1" * 4000] * ROWS)}), use_dictionary=[COLUMN])
    body, footer = footer_of(data)
    meta = Reading(footer).struct()
    meta[4] = (LIST, (STRUCT, meta[4][1][1] * 1000))
    meta[3] = (I64, ROWS * 1000)
    return closed(body, meta)


def elsewhere() -> bytes:
    body, footer = footer_of(written(pa.table({ID: ids(), COLUMN: np.ones(ROWS)})))
    meta = Reading(footer).struct()
    meta[4][1][1][0][1][1][1][0][1] = (BINARY, b"/etc/passwd")
    return closed(body, meta)


def with_rows(rows: int) -> bytes:
    """A footer that says `rows` rows everywhere, over pages that have 8,192."""
    body, footer = footer_of(written(pa.table({ID: ids(), COLUMN: np.ones(ROWS)})))
    meta = Reading(footer).struct()
    group = meta[4][1][1][0]
    meta[3] = group[3] = (I64, rows)
    for place in range(2):
        chunk(meta, place)[5] = (I64, rows)
    return closed(body, meta)


def varied(data: bytes, rng: random.Random) -> bytes:
    """The same file with a few bytes changed, mostly where headers and the footer are."""
    changed, tail = bytearray(data), max(4, len(data) - 1000)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(tail, len(data) - 8) if rng.random() < 0.7 else rng.randrange(4, min(200, len(data)))
        changed[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    return bytes(changed)


# --- the process that reads them ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Told:
    """What became of one file: `taken`, the code of a refusal, or what escaped. MiB, seconds."""

    name: str
    outcome: str
    size: int
    grown: int
    seconds: float


def _table(path: Path) -> None:
    from features_party.tables.feature_tables import read_features

    read_features(path, ID)


def _join(path: Path) -> None:
    from features_party.tables.feature_files import FeatureFile, decoded_bytes

    decoded_bytes(path)
    for _ in FeatureFile.open(path, ID).batches():
        pass


def _upload(path: Path) -> None:
    from labels_party.labels.formats.formats import PARQUET
    from tests.support.upload_formats import BytesSource

    for _ in PARQUET.chunks(BytesSource(path.read_bytes()), (ID, COLUMN), path.parent):
        pass


def _labels(path: Path) -> None:
    from labels_party.labels.label_file import LabelFile

    for _ in LabelFile.open(path, (ID, COLUMN)).chunks():
        pass


def _features(path: Path) -> None:
    from labels_party.companions.kinds.feature_store import FeatureStore

    with path.open("rb") as file:
        FeatureStore._table(file, ID, "the upload")


READERS: dict[str, Callable[[Path], None]] = {
    "feature table": _table, "join": _join, "label upload": _upload, "privatize": _labels, "own features": _features,
}  # fmt: skip


def told(folder: Path, reader: str, planted: bool = False, seconds: float = 300) -> tuple[int, list[Told]]:
    """(exit status, what became of each file in `folder`). `planted`: with Arrow's own reader, unguarded."""
    environment = os.environ | {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.support.swelling", str(folder), reader, "planted" * planted]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, timeout=seconds, check=False)
    return done.returncode, [Told(**json.loads(line)) for line in done.stdout.splitlines()]


def _peak() -> int:
    return int(Path("/proc/self/status").read_text(encoding="ascii").split("VmHWM:")[1].split()[0]) // 1024


def main(folder: Path, reader: str, planted: str) -> None:
    honest = folder.parent / "honest.parquet"
    honest.write_bytes(written(pa.table({ID: ids(), COLUMN: np.ones(ROWS)})))
    READERS[reader](honest)  # what is loaded stays loaded
    for path in sorted(folder.iterdir()):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        before, start = _peak(), time.monotonic()
        try:
            if planted:
                pq.read_table(path)
            else:
                READERS[reader](path)
            outcome = "taken"
        except LabelDPError as refusal:
            outcome = refusal.code
        except Exception as error:
            outcome = f"escaped: {type(error).__name__}: {error}"
        found = Told(path.stem, outcome, path.stat().st_size, _peak() - before, round(time.monotonic() - start, 2))
        print(json.dumps(asdict(found)), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
