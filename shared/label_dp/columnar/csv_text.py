"""Faults of a text file that should be CSV, by line and rule, never by content (invariant charge-for-labels).

CSV here is UTF-8 (with or without a byte order mark), a header, commas, quotes doubled inside quotes. Other separators
are not guessed: where a comma is the decimal sign, a guess would read other numbers than were meant.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Generator, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from label_dp.errors import InvalidFile, InvalidRows

HEAD_BYTES = 1 << 16
SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "vertical bars"}
# what people send in place of CSV, by its first bytes
OTHER_FILES = {
    b"\xff\xfe": "is UTF-16 text; save it as UTF-8",
    b"\xfe\xff": "is UTF-16 text; save it as UTF-8",
    b"PK\x03\x04": "is a ZIP archive or an Excel workbook; save its table as CSV or Parquet",
    b"\xd0\xcf\x11\xe0": "is an Excel workbook; save its table as CSV or Parquet",
    b"\x1f\x8b": "is compressed by gzip; decompress it first",
    b"\x28\xb5\x2f\xfd": "is compressed by zstd; decompress it first",
    b"ARROW1": "is an Arrow file; save it as Parquet or CSV",
    b"ORC": "is an ORC file; save it as Parquet or CSV",
}


def refuse_other_files(head: bytes, shown: str) -> None:
    """Raises InvalidFile for what by its first bytes is neither CSV nor Parquet, saying what it is."""
    for magic, what in OTHER_FILES.items():
        if head.startswith(magic):
            raise InvalidFile(f"'{shown}' {what}.")
    if b"\0" in head:
        raise InvalidFile(f"'{shown}' is no text: expected a Parquet file, or CSV in UTF-8 with a header.")


def other_separator(header: str, shown: str) -> str | None:
    """A sentence on a header that has no comma but another common separator."""
    words = next((words for sign, words in SEPARATORS.items() if sign in header), None)
    if "," in header or words is None:
        return None
    return f"'{shown}' separates its values by {words}; separate them by commas, with a point as the decimal sign."


def diagnose(source: Path | BinaryIO, shown: str) -> InvalidFile | None:
    """Why this text is no well-formed CSV: its encoding, an open quote, or a row of another length than the header.

    Lines count from 1, the header's. None where nothing of that is found, or the file cannot be read once more.
    """
    try:
        if isinstance(source, Path):
            with source.open("rb") as file:
                return _diagnose(file, shown)
        source.seek(0)
        return _diagnose(source, shown)
    except (OSError, csv.Error):
        return None


def _diagnose(file: BinaryIO, shown: str) -> InvalidFile | None:
    try:
        refuse_other_files(file.read(HEAD_BYTES), shown)
    except InvalidFile as error:
        return error
    file.seek(0)
    for number, line in enumerate(file, start=1):
        try:
            line.decode("utf-8")
        except UnicodeDecodeError:
            return InvalidFile(
                f"Line {number} of '{shown}' is not UTF-8 text; save the file as UTF-8 (it may be Latin-1 or "
                "Windows-1252)."
            )
    for strict in (True, False):  # stray quotes end a strict reading, though Arrow takes them
        file.seek(0)
        with suppress(csv.Error), closing(rows_with_lines(file, strict=strict)) as rows:
            return _shape(rows, shown)
    return None


def _shape(rows: Iterator[tuple[int, list[str] | None]], shown: str) -> InvalidFile | None:
    width = 0
    separated: str | None = None
    for begins, row in rows:
        if row is None:
            return InvalidFile(f"The row that begins on line {begins} of '{shown}' has a quote that is never closed.")
        if not width:
            width = len(row)
            separated = other_separator(row[0], shown) if width == 1 else None
        elif len(row) != width:
            if separated is not None:  # its decimal signs are commas
                return InvalidFile(separated)
            values = "1 value" if len(row) == 1 else f"{len(row)} values"
            columns = "1 column" if width == 1 else f"{width} columns"
            return InvalidFile(f"Line {begins} of '{shown}' has {values}, but its header names {columns}.")
    return None


def rows_with_lines(file: BinaryIO, *, strict: bool = False) -> Generator[tuple[int, list[str] | None], None, None]:
    """(line on which the row begins, its values) for each row that is not empty; None for a quote that stays open.

    Only a strict reading notices such a quote, and refuses others out of place by csv.Error.
    """
    text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="replace", newline="")
    try:
        reader = csv.reader(text, strict=strict)
        while True:
            begins = reader.line_num + 1
            try:
                row = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                if "unexpected end" not in str(error):
                    raise
                yield begins, None
                return
            if row:
                yield begins, row
    finally:
        text.detach()  # the file stays open: it is its opener's


def header_of(file: BinaryIO) -> list[str]:
    """The names in the first row that is not empty, from the start of a file that is left there."""
    file.seek(0)
    with suppress(csv.Error), closing(rows_with_lines(file)) as rows:
        found = next(rows, (0, None))[1] or []
    file.seek(0)
    return found


def with_lines(error: InvalidRows, source: Path) -> InvalidRows:
    """The same error, its rows with the lines of a CSV file on which they begin; as it is for any other file."""
    wanted = {problem.row for problem in error.problems if problem.line is None}
    if not wanted:
        return error
    found: dict[int, int] = {}
    try:
        with source.open("rb") as file:
            if file.read(4) == b"PAR1":
                return error
            file.seek(0)
            with closing(rows_with_lines(file)) as rows:
                next(rows, None)  # the header
                for number, (begins, _) in enumerate(rows):
                    if number in wanted:
                        found[number] = begins
                    if number >= max(wanted):
                        break
    except (OSError, csv.Error):
        return error
    return InvalidRows([replace(p, line=found.get(p.row, p.line)) for p in error.problems], error.total)
