"""Parquet files that a malicious labels party could sign: each lies about itself, or expands, or says nonsense.

All are made from the honest file of a message (or of its prior) and are a few kilobytes, or a few hundred.
"""

from __future__ import annotations

import base64
import io
import struct
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.support.tampering import footer_of
from tests.support.thrift_forge import BINARY, I32, I64, LIST, STRUCT, Reading, Struct, write_struct, zigzag

HUGE, LONG = (1 << 31) - 1, 1 << 20
CODECS = ("snappy", "gzip", "brotli", "zstd", "lz4")
Edit = Callable[[Struct], object]


def closed(body: bytes, meta: Struct, magic: bytes = b"PAR1") -> bytes:
    footer = write_struct(meta)
    return body + footer + struct.pack("<I", len(footer)) + magic


def with_footer(data: bytes, edit: Edit) -> bytes:
    body, footer = footer_of(data)
    meta = Reading(footer).struct()
    edit(meta)
    return closed(body, meta)


def group(meta: Struct, number: int = 0) -> Struct:
    return meta[4][1][1][number]  # type: ignore[no-any-return]  # fields of a struct are of any type


def chunk(meta: Struct, column: int) -> Struct:
    return group(meta)[1][1][1][column][3][1]  # type: ignore[no-any-return]  # as above


def with_page(data: bytes, column: int, edit: Edit) -> bytes:
    """The first page of a column (its dictionary, if it has one) with another header, laid at the end of the body."""
    body, footer = footer_of(data)
    meta = Reading(footer).struct()
    about = chunk(meta, column)
    start = about[11][1] if 11 in about else about[9][1]
    reading = Reading(data, start)
    header = reading.struct()
    stop, after = start + about[7][1], reading.at + header[3][1]
    page, rest = data[reading.at : after], data[after:stop]
    edit(header)
    laid = write_struct(header) + page
    if 11 in about:
        about[11] = (I64, len(body))
    about[9] = (I64, len(body) + (len(laid) if 11 in about else 0))
    about[7] = (I64, len(laid) + len(rest))
    return closed(body + laid + rest, meta)


def lying_pages(data: bytes, columns: int) -> Iterator[tuple[str, bytes]]:
    def setting(*fields: tuple[int, int]) -> Edit:
        return lambda header: header.update({field: (I32, value) for field, value in fields})

    def inside(field: int, value: Any, kind: int = I32) -> Edit:
        return lambda header: header[5 if 5 in header else 7][1].update({field: (kind, value)})

    for column in range(columns):
        edits: dict[str, Edit] = {
            "two gigabytes decompressed": setting((2, HUGE)),
            "100 MB decompressed": setting((2, 100_000_000)),
            "two gigabytes compressed": setting((3, HUGE)),
            "a negative size": setting((2, -1)),
            "a negative compressed size": setting((3, -5)),
            "two billion values": inside(1, HUGE),
            "minus one value": inside(1, -1),
            "no values": inside(1, 0),
            "a size of 33 bits": lambda h: h.update({2: (I64, (1 << 32) + h[2][1])}),
            "a size in another type": lambda h: h.update({2: (I64, h[2][1])}),
            "a large statistic": inside(5, {3: (BINARY, b"x" * 100_000)}, STRUCT),
            "an unknown kind": setting((1, 77)),
            "an index page": setting((1, 1)),
            "a dictionary that is none": setting((1, 2)),
            "version 2": lambda h: h.update({1: (I32, 3), 8: h.pop(5 if 5 in h else 7)}),
            "no header of its kind": lambda h: h.pop(5, None),
            "unknown fields": lambda h: h.update({99: (BINARY, b"x")}),
            "fields that nest": lambda h: h.update({99: (STRUCT, _nested(2000))}),
        }
        for encoding in (1, 2, 4, 5, 6, 7, 8, 9, 77, -1):
            edits[f"encoding {encoding}"] = inside(2, encoding)
        for name, edit in edits.items():
            yield f"column {column}: {name}", with_page(data, column, edit)


def _nested(depth: int) -> bytes:
    return b"\x1c" * depth + b"\x15\0" + bytes(depth + 1)


def lying_footers(data: bytes) -> Iterator[tuple[str, bytes]]:
    body, footer = footer_of(data)

    def leaf(meta: Struct, field: int, kind: int, value: Any, column: int = 0) -> None:
        meta[2][1][1][column + 1][field] = (kind, value)

    def about(field: int, value: int, column: int = 0) -> Edit:
        return lambda meta: chunk(meta, column).update({field: (I64, value)})

    def tree(depth: int) -> Edit:
        def edit(meta: Struct) -> None:
            elements = meta[2][1][1]
            root, level = elements[0] | {5: (I32, 1)}, {3: (I32, 0), 4: (BINARY, b"g"), 5: (I32, 1)}
            meta[2] = (LIST, (STRUCT, [root, *[level] * depth, elements[1]]))

        return edit

    def many_columns(meta: Struct) -> None:
        elements = meta[2][1][1]
        meta[2] = (LIST, (STRUCT, [elements[0] | {5: (I32, 50_001)}, *[elements[1]] * 50_001]))

    def more_groups(many: int) -> Edit:
        empty = {1: (LIST, (STRUCT, [])), 2: (I64, 0), 3: (I64, 0)}
        return lambda meta: meta.update({4: (LIST, (STRUCT, [*meta[4][1][1], *[empty] * many]))})

    def key_value(key: bytes, value: bytes) -> Edit:
        pairs = [{1: (BINARY, key), 2: (BINARY, value)}]
        return lambda meta: meta.update({5: (LIST, (STRUCT, pairs))})

    deep = pa.int8()
    for _ in range(60):
        deep = pa.list_(deep)
    schemas = {
        name: pq.read_schema(io.BytesIO(data)).set(0, pa.field(pq.read_schema(io.BytesIO(data)).names[0], kind))
        for name, kind in {
            "a dictionary": pa.dictionary(pa.int32(), pa.string()),
            "large strings": pa.large_string(),
            "views": pa.string_view(),
            "nested lists": deep,
            "an extension": pa.uuid(),
            "a duration": pa.duration("ns"),
            "half floats": pa.float16(),
        }.items()
    }
    schemas["ten thousand fields"] = pa.schema([pa.field(f"f{i}", pa.int8()) for i in range(10_000)])
    edits: dict[str, Edit] = {
        "2^31 rows": lambda m: m.update({3: (I64, 1 << 31)}),
        "2^63 - 1 rows": lambda m: m.update({3: (I64, (1 << 63) - 1)}),
        "minus one row": lambda m: m.update({3: (I64, -1)}),
        "2^31 rows everywhere": lambda m: [
            m.update({3: (I64, 1 << 31)}),
            group(m).update({3: (I64, 1 << 31)}),
            *(chunk(m, c).update({5: (I64, 1 << 31)}) for c in range(len(group(m)[1][1][1]))),
        ],
        "a group of more rows": lambda m: group(m).update({3: (I64, HUGE)}),
        "a group of no rows": lambda m: group(m).update({3: (I64, 0)}),
        "a group of minus one row": lambda m: group(m).update({3: (I64, -1)}),
        "50,000 more row groups": more_groups(50_000),
        "one more row group": more_groups(1),
        "the same group twice": lambda m: m.update({4: (LIST, (STRUCT, m[4][1][1] * 2))}),
        "a histogram of other levels": lambda m: chunk(m, 0).update(
            {16: (STRUCT, {1: (I64, 5), 2: (LIST, (I64, [1, 2])), 3: (LIST, (I64, [1, 2, 3]))})}
        ),
        "a list of another type": lambda m: chunk(m, 0).update({2: (LIST, (STRUCT, [{1: (I32, 0)}]))}),
        "no row groups": lambda m: m.update({4: (LIST, (STRUCT, []))}),
        "a column of more values": about(5, 1 << 40),
        "a column of minus one value": about(5, -1),
        "chunks larger than the file": about(7, 1 << 40),
        "a chunk of a negative size": about(7, -1),
        "a chunk of no size": about(7, 0),
        "a chunk at its file's end": about(9, len(data)),
        "a chunk before its file": about(9, -4),
        "a chunk far beyond it": about(9, 1 << 62),
        "a dictionary at the front": about(11, 4),
        "two columns in one place": lambda m: chunk(m, 0).update({k: chunk(m, -1)[k] for k in (7, 9)}),
        "another codec": lambda m: chunk(m, 0).update({4: (I32, 1)}),
        "an unknown codec": lambda m: chunk(m, 0).update({4: (I32, 55)}),
        "LZO": lambda m: chunk(m, 0).update({4: (I32, 3)}),
        "no codec": lambda m: chunk(m, 0).update({4: (I32, 0)}),
        "another type in the chunk": lambda m: chunk(m, 0).update({1: (I32, 5)}),
        "another path": lambda m: chunk(m, 0).update({3: (LIST, (BINARY, [b"label"]))}),
        "a column in another file": lambda m: group(m)[1][1][1][0].update({1: (BINARY, b"/etc/passwd")}),
        "a column without metadata": lambda m: group(m)[1][1][1][0].pop(3),
        "a column less": lambda m: group(m)[1][1][1].pop(),
        "an old writer's name": lambda m: m.update({6: (BINARY, b"parquet-mr version 1.2.8 (build 1)")}),
        "an encrypted file": lambda m: m.update({8: (STRUCT, {1: (STRUCT, {1: (BINARY, b"x")})})}),
        "optional ids": lambda m: leaf(m, 3, I32, 1),
        "repeated ids": lambda m: leaf(m, 3, I32, 2),
        "ids of fixed length": lambda m: m[2][1][1][1].update({1: (I32, 7), 2: (I32, HUGE)}),
        "ids of INT96": lambda m: leaf(m, 1, I32, 3),
        "ids as decimals": lambda m: leaf(m, 6, I32, 5),
        "a logical type nobody knows": lambda m: leaf(m, 10, STRUCT, {99: (STRUCT, {})}),
        "a group for ids": lambda m: leaf(m, 5, I32, 1),
        "minus one child": lambda m: leaf(m, 5, I32, -1, -1),
        "a nested schema": tree(99),
        "a schema nested deeply": tree(20_000),
        "50,000 columns": many_columns,
        "metadata of 10 MB": key_value(b"k", b"v" * 10_000_000),
        "an Arrow schema that is none": key_value(b"ARROW:schema", b"AAAA" * 100),
        "an Arrow schema of bad base64": key_value(b"ARROW:schema", b"\xff" * 100),
    }
    for name, schema in schemas.items():
        edits[f"an Arrow schema with {name}"] = key_value(
            b"ARROW:schema", base64.b64encode(schema.serialize().to_pybytes())
        )
    for name, edit in edits.items():
        yield f"footer: {name}", with_footer(data, edit)
    tail = struct.pack("<I", len(footer))
    yield "footer: encrypted magic", data[:-4] + b"PARE"
    for name, length in (("of 4 GB", (1 << 32) - 1), ("of no bytes", 0), ("one byte long", 1), ("too long", len(data))):
        yield f"footer: {name}", data[:-8] + struct.pack("<I", length) + b"PAR1"
    yield (
        "footer: a field twice",
        body
        + footer[:-1]
        + b"\x06"
        + zigzag(3)
        + zigzag(60)
        + b"\0"
        + tail[:0]
        + (struct.pack("<I", len(footer) + 3) + b"PAR1"),
    )
    lists = b"\x19" * 50_000
    yield "footer: lists in lists", body + lists + struct.pack("<I", len(lists)) + b"PAR1"
    structs = b"\x1c" * 50_000
    yield "footer: structs in structs", body + structs + struct.pack("<I", len(structs)) + b"PAR1"
    claims = b"\x15\x02\x19\xfc" + b"\xff" * 8 + b"\x7f"
    yield "footer: a list of 2^62 elements", body + claims + struct.pack("<I", len(claims)) + b"PAR1"


def expanding(ids: list[str], bins: Any, outputs: Any) -> Iterator[tuple[str, bytes]]:
    """Files without a lie in them (but one) that become very large."""
    n = len(ids)
    same = table(["x" * LONG] * n, bins, outputs)
    yield "expands: ids in a dictionary", written(same, use_dictionary=True, dictionary_pagesize_limit=1 << 30)
    hidden = written(same, use_dictionary=True, dictionary_pagesize_limit=1 << 30)
    yield (
        "expands: ids in a dictionary that the footer hides",
        with_footer(hidden, lambda m: chunk(m, 0).update({2: (LIST, (I32, [0, 3]))})),
    )
    yield "expands: ids in a dictionary, under another column's name", renamed_dictionary(n, bins, outputs)
    for encoding in ("DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"):
        yield f"expands: {encoding}", written(same, use_dictionary=False, column_encoding={"example_id": encoding})
    for codec in CODECS:
        one = table(["a" * (1 << 24), *ids[1:]], bins, outputs)
        yield f"expands: one long id, {codec}", written(one, compression=codec)


def renamed_dictionary(n: int, bins: Any, outputs: Any) -> bytes:
    """One long text among two million empty ones, which a column of short values might have, named by every row."""
    body, footer = footer_of(written(table(["x"] * n, bins, outputs), use_dictionary=True))
    meta, many = Reading(footer).struct(), 1 << 21
    about = chunk(meta, 0)
    start, stop = about[11][1], about[11][1] + about[7][1]
    reading = Reading(body, start)
    header = reading.struct()
    pages = body[reading.at + header[3][1] : stop]
    plain = struct.pack("<I", 6 * LONG) + b"x" * (6 * LONG) + bytes(4 * (many - 1))
    small = pa.Codec("zstd").compress(plain, asbytes=True)
    header |= {2: (I32, len(plain)), 3: (I32, len(small))}
    header[7][1][1] = (I32, many)
    laid = write_struct(header) + small
    about |= {9: (I64, len(body) + len(laid)), 11: (I64, len(body)), 7: (I64, len(laid) + len(pages))}
    about[3] = (LIST, (BINARY, [b"label"]))
    return closed(body + laid + pages, meta)


def wrong_rows(ids: list[str], bins: Any, outputs: Any) -> Iterator[tuple[str, bytes]]:
    """Honest files whose rows are not those of a message."""
    n, labels = len(ids), outputs[bins]
    broken = pa.StringArray.from_buffers(
        n, pa.py_buffer(np.arange(0, 2 * n + 1, 2, dtype=np.int32).tobytes()), pa.py_buffer(b"".join(_rising(n)))
    )
    columns: dict[str, list[Any]] = {
        "unsorted ids": [ids[::-1], bins, labels],
        "an id twice": [[ids[0], *ids[:-1]], bins, labels],
        "ids that are no UTF-8": [broken, bins, labels],
        "an empty id": [["", *ids[1:]], bins, labels],
        "an id of 513 bytes": [[*ids[:-1], "z" * 513], bins, labels],
        "ids as numbers": [np.arange(n, dtype=np.float64), bins, labels],
        "ids that are NaN": [np.full(n, np.nan), bins, labels],
        "ids as bytes": [pa.array([i.encode() for i in ids], pa.binary()), bins, labels],
        "a bin too many": [ids, np.full(n, len(outputs), np.uint8), labels],
        "bins of 64 bits": [ids, bins.astype(np.uint64), labels],
        "signed bins": [ids, bins.astype(np.int8), labels],
        "labels of another bin": [ids, 1 - bins, labels],
        "labels that are NaN": [ids, bins, np.full(n, np.nan)],
        "infinite labels": [ids, bins, np.full(n, np.inf)],
        "labels of 32 bits": [ids, bins, labels.astype(np.float32)],
        "a row less": [ids[:-1], bins[:-1], labels[:-1]],
        "a row more": [[*ids, "zzzz"], np.append(bins, bins[:1]), np.append(labels, labels[:1])],
        "no rows": [pa.array([], pa.string()), bins[:0], labels[:0]],
        "missing ids": [pa.array([None, *ids[1:]]), bins, labels],
        "lists of labels": [ids, bins, pa.array([[v] for v in labels])],
    }
    for name, (a, b, c) in columns.items():
        nullable = name == "missing ids"
        arrays = [pa.array(part) if not isinstance(part, pa.Array) else part for part in (a, b, c)]
        names = ("example_id", "bin", "label")
        fields = [pa.field(f, x.type, nullable=nullable) for f, x in zip(names, arrays, strict=True)]
        yield f"rows: {name}", written(pa.table(arrays, schema=pa.schema(fields)), use_dictionary=False)
    honest = table(ids, bins, outputs)
    yield "rows: columns in another order", written(honest.select(["label", "bin", "example_id"]))
    yield "rows: a column more", written(honest.append_column("more", honest["label"]))
    yield "rows: a column less", written(honest.select(["example_id", "bin"]))
    yield "rows: a column of another case", written(honest.rename_columns(["Example_ID", "bin", "label"]))
    yield "rows: a column name twice", written(honest.rename_columns(["example_id", "label", "label"]))


def _rising(n: int) -> list[bytes]:
    return [bytes([0xC0 + i // 60, 0x30 + i % 60]) for i in range(n)]


def table(ids: Any, bins: Any, outputs: Any) -> pa.Table:
    arrays = [pa.array(ids, pa.string()), pa.array(bins), pa.array(outputs[bins])]
    names = ("example_id", "bin", "label")
    return pa.table(
        arrays, schema=pa.schema([pa.field(n, a.type, nullable=False) for n, a in zip(names, arrays, strict=True)])
    )


def written(made: pa.Table, **how: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(made, sink, **({"compression": "zstd", "use_dictionary": ["label"]} | how))
    return sink.getvalue()
