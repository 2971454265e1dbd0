"""Generated bad labels and ids, planted among good ones: each breaks one known rule and holds one secret to look for.

The domain of the uploads is 0:100 under the rule `refuse`. A secret is text that must show nowhere: not in replies,
logs or metrics. It has at least seven characters, and ids in the uploads are short, so it cannot be met by chance.
"""

from __future__ import annotations

import json
import math
import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tests.support.upload_formats import COLUMN_FORMATS, records_body, table_body, text_body, token

NUMBER, FINITE, OUTSIDE = "must be a number", "must be a finite number", "outside the label domain"
MEMBERS, ID_TYPE, ID_LENGTH = "exactly the members", "must be text or a whole number", "bytes long"
ID_UNICODE, REPEATED = "valid Unicode", "occurred in an earlier row"
EMPTY = {NUMBER: ("has no label",), ID_LENGTH: ("is empty",)}  # what is said of an empty cell
SECRET_LENGTH = 7

UNICODE_DIGITS = ["０１２３４５６７８９", "٠١٢٣٤٥٦٧٨٩", "०१२३४५६७८९", "𝟎𝟏𝟐𝟑𝟒𝟓𝟔𝟕𝟖𝟗"]


@dataclass(frozen=True)
class Upload:
    body: bytes
    planted: tuple[int, ...]  # rows that must be named, and no others
    field: str
    rule: str
    secrets: tuple[str, ...]


def digits(rng: random.Random) -> str:
    return str(rng.randrange(10**9, 10**10))


def outside(rng: random.Random) -> str:
    """A finite number outside 0:100, as JSON and CSV both spell it."""
    bits = struct.unpack("<d", rng.randbytes(8))[0]
    while not math.isfinite(bits) or 0 <= bits <= 100:
        bits = struct.unpack("<d", rng.randbytes(8))[0]
    return rng.choice(
        [
            repr(bits),
            digits(rng),
            "-" + digits(rng),
            f"{digits(rng)}.{digits(rng)}",
            f"-0.{digits(rng)}",
            f"100.{digits(rng)}",
            f"-{digits(rng)}e-{rng.randrange(20, 300)}",  # down to where it is subnormal
            f"{digits(rng)}e{rng.randrange(290)}",
            str(rng.randrange(2**64, 2**64 * 1000)),
            str(-rng.randrange(2**63, 2**70)),
            "1" + "0" * 30 + digits(rng),
            "-5e-324",
            "1.7976931348623157e308",
            "100.00000000000001",
        ]
    )


def infinite(rng: random.Random) -> str:
    """A spelling in digits of a number beyond every float."""
    return rng.choice(
        [
            f"{digits(rng)}e{rng.randrange(301, 4000)}",
            f"-{digits(rng)}e{rng.randrange(301, 4000)}",
            digits(rng) + "0" * rng.randrange(301, 900),
            "-" + digits(rng) + "0" * rng.randrange(301, 900),
            f"{digits(rng)}.5e99999999999",
        ]
    )


def no_number(rng: random.Random) -> str:
    """Text that looks like a number to some parser, and is none."""
    d = digits(rng)
    script = rng.choice(UNICODE_DIGITS)
    return rng.choice(
        [
            "seven" + d,
            d[:3] + "_" + d[3:],
            "0x" + d,
            "0b" + d,
            "".join(script[int(c)] for c in d),
            d + " " + d,
            d + "€",
            "$" + d,
            d + "e",
            "--" + d,
            "1.2.3" + d,
            d + "d0",
            "=" + d + "+1",
            "\u202e" + d,
            d + "\u200b",
            "not-a-number-" + d,
            "(" + d + ")",
        ]
    )


def json_label(rng: random.Random, rule: str) -> str:
    if rule == OUTSIDE:
        return outside(rng)
    if rule == FINITE:
        return infinite(rng)
    d = digits(rng)
    return rng.choice(
        [
            "null", "true", "false", '""', "{}", "[]", f'"{d}"', f'"{d}.5"', f"[{d}]", f"[[[{d}]]]", f'{{"value":{d}}}',
            f'{{"$numberDouble":"{d}"}}', "[" * 40 + d + "]" * 40, '"NaN"', '"-Infinity"',
            json.dumps(no_number(rng), ensure_ascii=rng.random() < 0.5),
        ]
    )  # fmt: skip


def csv_label(rng: random.Random, rule: str) -> str:
    if rule == OUTSIDE:
        return outside(rng)
    if rule == FINITE:
        return rng.choice(["nan", "NaN", "inf", "-inf", "Infinity", "-Infinity", infinite(rng)])
    d = digits(rng)
    other = ["", '""', "NA", "null", "None", "true", "FALSE", f'"{d[:4]},{d[4:]}"', f'"{d[:5]}\n{d[5:]}"', f"[{d}]"]
    return rng.choice([*other, no_number(rng), no_number(rng)])


def secrets_of(cell: str) -> tuple[str, ...]:
    """What of a cell must not show: its text, and its first digits, which also a reformatted number would have."""
    bare = cell.strip('"[]{} ')
    found = [bare] if len(bare) >= SECRET_LENGTH else []
    number = bare.lstrip("-").split("e")[0]
    if (
        number.replace(".", "").isdigit()
        and len(number) > SECRET_LENGTH + 2
        and not number.startswith(("100.0", "10000"))
    ):
        found.append(number[: SECRET_LENGTH + 2])
    return tuple(found)


def bad_label_text(form: str, ids: Sequence[str], planted: Sequence[int], rng: random.Random) -> Upload:
    rule = rng.choice([NUMBER, FINITE, OUTSIDE])
    draw = csv_label if form == "csv" else json_label
    labels = [str(rng.randrange(101)) for _ in ids]
    for row in planted:
        labels[row] = draw(rng, rule)
    found = tuple(s for row in planted for s in secrets_of(labels[row]))
    return Upload(text_body(form, [token(form, i) for i in ids], labels), tuple(planted), "label", rule, found)


def bad_members(form: str, ids: Sequence[str], planted: Sequence[int], rng: random.Random) -> Upload:
    """Records with a member too many or too few, or that are no object."""
    records = [f'{{"example_id":"{i}","label":{rng.randrange(101)}}}' for i in ids]
    found = []
    for row in planted:
        d, i = digits(rng), ids[row]
        found.append(d)
        records[row] = rng.choice(
            [
                f'{{"example_id":"{i}"}}', f'{{"label":{d}}}', "{}", d, f'"{d}"', "null", f"[{d}]", f'["{i}",{d}]',
                f'{{"example_id":"{i}","label":1,"x":{d}}}', f'{{"example_id":"{i}","Label":{d}}}',
                f'{{"example_id":"{i}","label ":{d}}}', f'{{"example_id":"{i}","{d}":5}}',
            ]
        )  # fmt: skip
    return Upload(records_body(form, records), tuple(planted), "records", MEMBERS, tuple(found))


def bad_id_text(form: str, ids: Sequence[str], planted: Sequence[int], rng: random.Random) -> Upload:
    rules = [ID_LENGTH] if form == "csv" else [ID_LENGTH, ID_TYPE, ID_UNICODE]
    rule = rng.choice(rules) if planted[0] == 0 else rng.choice([*rules, REPEATED])
    tokens, found = [token(form, i) for i in ids], []
    for row in planted:
        d = digits(rng)
        found.append(d)
        if rule == ID_LENGTH:
            long = d * rng.choice([52, 60, 1000, 1024])  # 520 bytes to 10 kB
            tokens[row] = rng.choice(["", long]) if form == "csv" else rng.choice(['""', f'"{long}"'])
        elif rule == ID_TYPE:
            tokens[row] = rng.choice(["null", "true", "1.5", f"{d}.0", f"{d}e1", f'["{d}"]', f'{{"id":"{d}"}}', "[]"])
        elif rule == ID_UNICODE:
            tokens[row] = rng.choice([f'"{d}\\ud8{row:02x}"', f'"\\udc00{d}"', f'"\\udfff\\ud800{d}"'])
        else:
            tokens[row] = tokens[0]
    labels = [str(rng.randrange(101)) for _ in ids]
    return Upload(text_body(form, tokens, labels), tuple(planted), "example_id", rule, tuple(found))


# --- columns: all labels of an upload have one type ---------------------------------------------------------


def packed(form: str, table: pa.Table, rng: random.Random) -> bytes:
    """The table in one of the compressions of its format."""
    if form == "arrow":
        return table_body(form, table, compression=rng.choice([None, "lz4", "zstd"]))
    return table_body(form, table, compression=rng.choice(["none", "snappy", "gzip", "zstd", "brotli", "lz4"]))


def _float_outside(rng: random.Random) -> float:
    return float(outside(rng))


def _text(rng: random.Random, rule: str) -> str | None:
    if rule == NUMBER:
        return rng.choice([None, "", no_number(rng), no_number(rng), "NA", "null"])
    found = csv_label(rng, rule)
    return found if len(found) <= 512 else _text(rng, rule)  # longer values of a dictionary break a rule of their own


def _integer(bits: int, signed: bool) -> Callable[[random.Random], int]:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1)) if signed else (0, 2**bits)

    def draw(rng: random.Random) -> int:
        value = rng.choice([rng.randrange(low, high), high - 1, low])
        return value if not 0 <= value <= 100 else 101

    return draw


INTEGERS = [(pa.int8(), 8, True), (pa.int16(), 16, True), (pa.int32(), 32, True), (pa.int64(), 64, True)]
INTEGERS += [(pa.uint8(), 8, False), (pa.uint16(), 16, False), (pa.uint32(), 32, False), (pa.uint64(), 64, False)]
TEXTS = [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())]


def bad_label_column(form: str, ids: Sequence[str], planted: Sequence[int], rng: random.Random) -> Upload:
    kind = rng.choice(["float", "float", "narrow", "integer", "text", "decimal", "dictionary"])
    rule = rng.choice([NUMBER, FINITE, OUTSIDE])
    values: list[object] = [rng.randrange(101) for _ in ids]
    if kind in ("integer", "decimal") and rule == FINITE:
        rule = OUTSIDE
    of: pa.DataType
    if kind == "text":
        values, of = [str(v) for v in values], rng.choice(TEXTS)
        draw: Callable[[], object] = lambda: _text(rng, rule)  # noqa: E731 - one of many of its kind
    elif kind == "integer":
        of, bits, signed = rng.choice(INTEGERS)
        whole = _integer(bits, signed)
        draw = (lambda: whole(rng)) if rule == OUTSIDE else (lambda: None)
    elif kind == "decimal":
        of = rng.choice([pa.decimal128(38, 0), pa.decimal256(60, 0)])
        draw = (lambda: rng.choice([-1, 1]) * int(digits(rng))) if rule == OUTSIDE else (lambda: None)
    else:
        narrow = rng.choice([pa.float32(), pa.float16()])
        of = {"float": pa.float64(), "narrow": narrow, "dictionary": pa.float64()}[kind]
        beyond = (lambda: rng.choice([-1.0, 250.5, 60000.0])) if kind == "narrow" else (lambda: _float_outside(rng))
        endless = lambda: rng.choice([math.nan, math.inf, -math.inf])  # noqa: E731 - one of many of its kind
        draw = {OUTSIDE: beyond, FINITE: endless, NUMBER: lambda: None}[rule]
    for row in planted:
        values[row] = draw()
    column = pa.array(values, of.value_type if pa.types.is_dictionary(of) else of)
    if kind == "dictionary" or pa.types.is_dictionary(of):
        column = column.dictionary_encode()
    found = tuple(s for row in planted if values[row] is not None for s in secrets_of(str(values[row])))
    body = packed(form, pa.table({"example_id": list(ids), "label": column}), rng)
    return Upload(body, tuple(planted), "label", rule, found)


def bad_id_column(form: str, ids: Sequence[str], planted: Sequence[int], rng: random.Random) -> Upload:
    rule = ID_LENGTH if planted[0] == 0 else rng.choice([ID_LENGTH, REPEATED])
    cells: list[str | None] = list(ids)
    found = []
    for row in planted:
        found.append(digits(rng))
        cells[row] = cells[0] if rule == REPEATED else rng.choice([None, "", found[-1] * rng.choice([52, 1024])])
    column = pa.array(cells, rng.choice([pa.string(), pa.large_string()]))
    column = column.dictionary_encode() if rng.random() < 0.3 else column
    body = packed(form, pa.table({"example_id": column, "label": [float(rng.randrange(101)) for _ in ids]}), rng)
    return Upload(body, tuple(planted), "example_id", rule, tuple(found))


def bad_rows(form: str, ids: Sequence[str], planted: Sequence[int], rng: random.Random) -> Upload:
    """An upload of `ids` whose rows `planted` all break the same rule."""
    if form in COLUMN_FORMATS:
        make = bad_id_column if rng.random() < 0.2 else bad_label_column
    else:
        members = form in ("json-records", "ndjson") and rng.random() < 0.1
        make = bad_members if members else bad_id_text if rng.random() < 0.2 else bad_label_text
    return make(form, ids, planted, rng)
