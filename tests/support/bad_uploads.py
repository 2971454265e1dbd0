"""Generated uploads that are wrong as a whole: cut, damaged, of the wrong shape or type, or lying about themselves.

Each is `refused` for certain, or may happen to be readable still (a flipped bit): then its rows count in full.
"""

from __future__ import annotations

import datetime as dt
import json
import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tests.support.bad_labels import digits
from tests.support.upload_formats import COLUMN_FORMATS, good_body, table_body


@dataclass(frozen=True)
class Damaged:
    body: bytes
    refused: bool  # whether it must be; otherwise it may be taken, whole
    what: str
    secrets: tuple[str, ...] = ()


def _cut(form: str, whole: bytes, rng: random.Random) -> Damaged:
    return Damaged(whole[: rng.randrange(len(whole))], False, "cut")


def _flipped(form: str, whole: bytes, rng: random.Random) -> Damaged:
    data = bytearray(whole)
    for _ in range(rng.randrange(1, 5)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    return Damaged(bytes(data), False, "flipped")


def _spliced(form: str, whole: bytes, rng: random.Random) -> Damaged:
    """A piece of the upload twice, or left out, or another file's bytes before or behind it."""
    a, b = sorted(rng.randrange(len(whole)) for _ in range(2))
    data = rng.choice(
        [whole[:b] + whole[a:], whole[:a] + whole[b:], b"\0" * 8 + whole, whole + b"\0" * 8, whole[::-1], whole + whole]
    )
    return Damaged(data, False, "spliced")


def _other_magic(form: str, whole: bytes, rng: random.Random) -> Damaged:
    magic = rng.choice(
        [b"\x1f\x8b\x08\0", b"PK\3\4", b"ARROW1\0\0", b"PAR1", b"ORC", b"\x28\xb5\x2f\xfd", b"%PDF-1.7", b"\x89PNG\r\n",
         b"Obj\x01", b"SQLite format 3\0", b"BZh9", b"\xfd7zXZ\0"]
    )  # fmt: skip
    return Damaged(magic + rng.randbytes(rng.randrange(400)), True, "other magic")


def _noise(form: str, whole: bytes, rng: random.Random) -> Damaged:
    return Damaged(b"\xff" + rng.randbytes(rng.randrange(2000)) + b"\xff", True, "noise")


def _empty(form: str, whole: bytes, rng: random.Random) -> Damaged:
    return Damaged(rng.choice([b"", b" ", b"\n\n", b"\0", b"\xef\xbb\xbf"]), True, "empty")


# --- text ---------------------------------------------------------------------------------------------------


def _json_shape(form: str, whole: bytes, rng: random.Random) -> Damaged:
    d, deep = digits(rng), rng.randrange(100, 20_000)
    label = f'{{"example_id":"a","label":{d}}}'
    columns = f'"example_id":["a"],"label":[{d}]'
    text = rng.choice(
        [
            "[" * deep, '{"records":' * deep, '{"records":[' * deep, f'{{"records":[{label}', f'{{"records":{label}}}',
            f'{{"records":[{label}],"more":{d}}}', f'{{{columns},"x":[{d}]}}',
            f'{{"example_id":["a"],"label":[{d},{d}]}}',
            f'{{"example_id":"a","label":{d}}}', f'{{"example_id":[],"label":[]}} {d}', f'{{"label":[{d}]}}', '"' + d,
            f"'{d}'", f"{{example_id:['a'],label:[{d}]}}", f'{{{columns},}}', f'{{"example_id":["a"],"label":[0{d}]}}',
            f'{{"example_id":["a"],"label":[+{d}]}}', f'{{"example_id":["a"],"label":[.{d}]}}', f"// {d}\n{{}}",
            f'{{"example_id":["a"],"label":[NaN{d}]}}', d, f'"{d}"', "null", "true", '{"records":null}',
            '{"records":{}}',
            f'{{"example_id":{{"a":1}},"label":[{d}]}}', f'{{"records":[{"[" * deep}', json.dumps({d: d}),
        ]
    )  # fmt: skip
    return Damaged(text.encode(), True, "shape", (d,))


def _ndjson_shape(form: str, whole: bytes, rng: random.Random) -> Damaged:
    d = digits(rng)
    text = rng.choice(
        [f'{{"example_id":"a","label":{d}', f'[{{"example_id":"a","label":{d}}}]', "[" * 5000, f"{d}\n{d}\n",
         f'{{"example_id":"a",\n"label":{d}}}\n', f'{{"records":[{{"example_id":"a","label":{d}}}]}}', f'"{d}"',
         f'{{"example_id":"a","label":5}}\n{{"example_id":"b","label":{d}', f'{{"example_id":"a","label":5}} {d}\n']
    )  # fmt: skip
    return Damaged(text.encode(), True, "shape", (d,))


def _csv_shape(form: str, whole: bytes, rng: random.Random) -> Damaged:
    d = digits(rng)
    many = ",".join(f"c{i}" for i in range(20_000))
    text = rng.choice(
        [f"example_id,label\na,1,{d}\n", "example_id,label\na\n", f'example_id,label\na,"{d}\n',
         f"example_id,amount\na,{d}",
         f"example_id,label,label\na,1,{d}\n", f"example_id;label\na;{d}\n", f"example_id\tlabel\na\t{d}\n",
         "example_id,label",
         f"example_id,label\n{'a' * 5_000_000},{d}\n", f"{many}\n{d}\n", f"label\n{d}\n", "\n" * 5000,
         f"example_id,label\n\0,{d},,\n"]
    )  # fmt: skip
    return Damaged(text.encode(), True, "shape", (d,))


def _other_encoding(form: str, whole: bytes, rng: random.Random) -> Damaged:
    text = whole.decode()
    return Damaged(rng.choice([text.encode("utf-16"), text.encode("utf-32-le"), b"\xe9" + whole]), True, "encoding")


# --- columns ------------------------------------------------------------------------------------------------

DAY = dt.date(2024, 6, 1)


def _label_types() -> list[tuple[Any, pa.DataType]]:
    """Values of a column that holds no numbers."""
    return [
        (True, pa.bool_()),
        ([7319462851], pa.list_(pa.int64())),
        ([7319462851], pa.large_list(pa.int64())),
        ([73.0, 19.0], pa.list_(pa.float64(), 2)),
        ({"value": 7319462851}, pa.struct([("value", pa.int64())])),
        ([("k", 7319462851)], pa.map_(pa.string(), pa.int64())),
        (b"7319462851", pa.binary()),
        (b"7319462851", pa.large_binary()),
        (b"73194628", pa.binary(8)),
        (DAY, pa.date32()),
        (DAY, pa.date64()),
        (dt.datetime(2024, 6, 1), pa.timestamp("us")),  # noqa: DTZ001 - a column without a zone is meant
        (dt.time(1), pa.time64("us")),
        (dt.timedelta(1), pa.duration("us")),
    ]


def _wrong_type(form: str, whole: bytes, rng: random.Random) -> Damaged:
    value, kind = rng.choice(_label_types())
    rows = rng.randrange(1, 40)
    odd, good = pa.array([value] * rows, kind), [f"x{i}" for i in range(rows)]
    if rng.random() < 0.3:
        other = rng.choice([odd, pa.array([1.5] * rows), pa.array([Decimal("1.5")] * rows)])
        table = pa.table({"example_id": other, "label": [73.0] * rows})
    else:
        table = pa.table({"example_id": good, "label": odd})
    return Damaged(table_body(form, table), True, f"type {kind}", ("7319462851",))


def _wrong_columns(form: str, whole: bytes, rng: random.Random) -> Damaged:
    d = digits(rng)
    ids, labels = pa.array(["x1", "x2"]), pa.array([int(d), 5])
    fields: list[tuple[str, pa.Array]] = [("example_id", ids), ("label", labels)]
    shape = rng.randrange(6)
    if shape == 0:
        fields = [("example_id", ids), (rng.choice(["labels", "LABEL", "label ", "", d]), labels)]
    elif shape == 1:
        fields.append(("label", labels))
    elif shape == 2:
        fields.append(("example_id", ids))
    elif shape == 3:
        fields = [(f"column{i}", labels) for i in range(3000)]
    elif shape == 4:
        fields = [("label", labels)]
    else:
        fields = [(n, c.slice(0, 0)) for n, c in fields]
    table = pa.Table.from_arrays([c for _, c in fields], names=[n for n, _ in fields])
    return Damaged(table_body(form, table), True, "columns", (d,))


def _lying_header(form: str, whole: bytes, rng: random.Random) -> Damaged:
    """Lengths and counts inside the file that are not so."""
    data = bytearray(whole)
    value = struct.pack("<I", rng.choice([0, 1, 2**31 - 1, 2**31, 2**32 - 1, rng.randrange(2**32)]))
    if form == "parquet":
        place = rng.choice([len(data) - 8, len(data) - 8 - rng.randrange(4, 300)])  # the footer's length; the footer
    else:
        place = rng.choice([4, rng.randrange(0, min(len(data) - 4, 600), 4)])  # the first message's length; its fields
    data[place : place + 4] = value
    return Damaged(bytes(data), False, "lying header")


TEXT = {
    "json-records": [_json_shape, _other_encoding],
    "json-columns": [_json_shape, _other_encoding],
    "ndjson": [_ndjson_shape, _other_encoding],
    "csv": [_csv_shape, _other_encoding],
}
COLUMNS = [_wrong_type, _wrong_columns, _lying_header, _lying_header]
ANY = [_cut, _flipped, _flipped, _spliced, _other_magic, _noise, _empty]


def damaged(form: str, ids: Sequence[str], rng: random.Random) -> Damaged:
    """One of the ways in which an upload of `ids` can be wrong as a whole."""
    whole = good_body(form, ids, [rng.randrange(101) for _ in ids])
    kinds = ANY + (COLUMNS if form in COLUMN_FORMATS else TEXT[form] * 2)
    return rng.choice(kinds)(form, whole, rng)
