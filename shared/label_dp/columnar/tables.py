"""Reading users' tables (Parquet and CSV), and example ids in canonical form."""

from __future__ import annotations

import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from label_dp.columnar.budget import needs
from label_dp.columnar.claims import MOST_COLUMNS
from label_dp.columnar.csv_text import diagnose, header_of, other_separator, refuse_other_files
from label_dp.columnar.csv_types import MISSING_WORDS, as_text
from label_dp.columnar.rows import Expands, ParquetRows, table_bytes
from label_dp.columnar.thrift import FineParts, LyingFile
from label_dp.errors import InvalidFile, InvalidRows, InvalidTable, RowProblem, TooLarge

if TYPE_CHECKING:
    import pyarrow as pa

MAX_ID_BYTES = 512
PARQUET_MAGIC = b"PAR1"
COPIES = 2  # of a table, while it is read and checked
CSV_BLOCK, CSV_VALUE = 1 << 20, 9
MOST_HEADER = 1 << 20  # bytes of a CSV file's first line that are checked


def read_table(
    source: Path | BinaryIO,
    *,
    text_columns: Sequence[str] | None = (),
    columns: Sequence[str] | None = None,
    name: str = "",
    names_are_public: bool = True,
    most_bytes: int | None = None,
    each: Callable[[pa.Table], pa.Table] = lambda table: table,
) -> pa.Table:
    """Read a Parquet or CSV file, told apart by content, as an Arrow table.

    `text_columns` of a CSV stay text (None: all do, and only an empty cell without quotes is missing); other columns
    get the type of all their cells, and words such as NA are missing values among numbers, but text among text. `each`
    reduces every piece of rows as it is read.

    `names_are_public` False keeps the columns' names out of error texts: in a file without a header they are its first
    row. A Parquet file may decode to 128 MiB plus 128 times its size, at most `most_bytes`; a CSV file may have as many
    bytes. Raises InvalidFile (unreadable, truncated, empty), InvalidTable (a column is missing, or there are more than
    MOST_COLUMNS) and TooLarge.
    """
    import pyarrow as pa

    label = name or (str(source) if isinstance(source, Path) else "the upload")
    refuse_pipe(source)
    try:
        handle = source.open("rb") if isinstance(source, Path) else source
    except OSError as error:
        raise InvalidFile(f"'{label}' cannot be read ({error.strerror}).") from None
    try:
        magic = handle.read(4)
        handle.seek(0)
        if not magic:
            raise InvalidFile(f"'{label}' is empty; expected a Parquet or CSV file with a header.")
        refuse_other_files(magic, label)
        if magic == PARQUET_MAGIC:
            return _read_parquet(source, columns, label, names_are_public, most_bytes, each)
        if most_bytes is not None and handle.seek(0, 2) > most_bytes:
            raise TooLarge(f"'{label}' has more than {most_bytes} bytes; send it in smaller parts.")
        refuse_wide(handle, label)
        needs(COPIES * _csv_bytes(handle))
        return each(read_csv(handle, text_columns, columns, label, names_are_public))
    except (pa.ArrowException, UnicodeDecodeError) as error:  # the latter for column names
        raise unreadable(handle, error, label) from None
    finally:
        if isinstance(source, Path):
            handle.close()


def refuse_pipe(source: Path | BinaryIO) -> None:
    """Raise InvalidFile for a pipe or device: readers seek, and opening a pipe may wait for ever."""
    try:
        mode = source.stat().st_mode if isinstance(source, Path) else stat.S_IFREG
    except OSError:
        return  # opening it reports the fault
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise InvalidFile(f"'{source}' is a pipe or a device, which cannot be read twice; save it as a file first.")


def damaged(label: str, error: Exception) -> InvalidFile:
    """Return the error for a Parquet file that could not be read to its end."""
    if isinstance(error, FineParts):
        return InvalidFile(f"'{label}' cannot be read: {error}.")
    return InvalidFile(f"'{label}' is a truncated or damaged Parquet file.")


def _csv_bytes(handle: BinaryIO) -> int:
    """Return the largest bytes of a decoded CSV file: a value takes its text, or eight bytes and an offset."""
    handle.seek(0)
    size = values = 0
    while block := handle.read(CSV_BLOCK):
        size += len(block)
        values += block.count(b",") + block.count(b"\n")
    handle.seek(0)
    return size + CSV_VALUE * values


def refuse_wide(handle: BinaryIO, label: str) -> None:
    """Check the header of a CSV file: each column takes a kilobyte, however short it is. Raises InvalidTable."""
    handle.seek(0)
    header = handle.read(MOST_HEADER).partition(b"\n")[0]
    handle.seek(0)
    if header.count(b",") >= MOST_COLUMNS:
        raise InvalidTable(f"'{label}' has more than {MOST_COLUMNS:,} columns.")


def unreadable(source: Path | BinaryIO, error: Exception, name: str = "") -> InvalidFile:
    """Return the error for a file that Arrow could not read, by line and rule if it is text. Arrow quotes cell values
    in its texts, so they are not passed on."""
    label = name or str(source)
    invalid_file = diagnose(source, label) if not is_parquet(source) else None
    return invalid_file or InvalidFile(
        f"'{label}' is not a complete Parquet file or a well-formed CSV file with a header."
    )


def is_parquet(source: Path | BinaryIO) -> bool:
    """Return whether a file begins as Parquet."""
    try:
        if isinstance(source, Path):
            with source.open("rb") as file:
                return file.read(4) == PARQUET_MAGIC
        source.seek(0)
        return source.read(4) == PARQUET_MAGIC
    except OSError:
        return False


def read_bytes(path: Path) -> bytes:
    """Read a small file. Raises InvalidFile."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidFile(f"'{path}' cannot be read ({error.strerror}).") from None


def _read_parquet(
    source: Path | BinaryIO,
    columns: Sequence[str] | None,
    label: str,
    public: bool,
    most_bytes: int | None,
    each: Callable[[pa.Table], pa.Table],
) -> pa.Table:
    try:
        with ParquetRows.open(source) as rows:
            if columns is not None:
                require_columns(rows.schema.names, columns, label, public)
            most = table_bytes(rows.claims.size, most_bytes)
            needs(COPIES * min(rows.most(columns), most))
            return rows.table(columns, most=most, each=each)
    except Expands as error:
        raise TooLarge(f"'{label}' is too large: {error}. Send it in smaller parts.") from None
    except (LyingFile, OSError) as error:
        raise damaged(label, error) from None


def read_csv(
    handle: BinaryIO,
    text_columns: Sequence[str] | None,
    columns: Sequence[str] | None,
    label: str,
    public: bool,
    types: Mapping[str, pa.DataType] | None = None,
) -> pa.Table:
    """Read a whole CSV file as `read_table` does, with these `types` of columns. Raises InvalidTable,
    pa.ArrowException, UnicodeDecodeError."""
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    # newlines inside quotes are legal in CSV, and descriptions have them
    options = arrow_csv.ParseOptions(newlines_in_values=True)
    if text_columns is None:
        convert = as_text(header_of(handle))
    else:
        convert = arrow_csv.ConvertOptions(
            column_types=dict(types or {}) | dict.fromkeys(text_columns, pa.string()),
            null_values=MISSING_WORDS,
            strings_can_be_null=False,
        )
    table = arrow_csv.read_csv(handle, parse_options=options, convert_options=convert)
    if any(pa.types.is_binary(kind) for kind in table.schema.types):
        raise UnicodeDecodeError("utf-8", b"", 0, 1, "a column that is no text")  # Arrow reads any bytes as bytes
    names = table.column_names  # decoding refuses a header that is no text
    if columns is not None:
        require_columns(names, columns, label, public)
        table = table.select(list(columns))
    return table


def columns_of_csv(handle: BinaryIO) -> pa.Schema:
    """Return the columns of a CSV file as text. Raises pa.ArrowException, UnicodeDecodeError."""
    from pyarrow import csv as arrow_csv

    names = header_of(handle)
    options = arrow_csv.ParseOptions(newlines_in_values=True)
    with arrow_csv.open_csv(handle, parse_options=options, convert_options=as_text(names)) as reader:
        return reader.schema


def require_columns(
    present: Sequence[str], required: Sequence[str], label: str, public: bool = True, *, csv: bool = True
) -> None:
    """Raise InvalidTable naming the missing column and, if names are public, the columns present.

    They also count as public if one of the required columns is present, since then the first row is a header. `csv`:
    whether a first line should name them.
    """
    public = public or any(column in present for column in required)
    for column in required:
        if list(present).count(column) != 1:
            separated = other_separator(present[0], label) if csv and len(present) == 1 else None
            if separated is not None:
                raise InvalidTable(separated)
            named = "Its columns are: " + (", ".join(f"'{c}'" for c in list(present)[:30]) or "none") + "."
            count = f"It has {len(present)} column{'' if len(present) == 1 else 's'}"
            unnamed = f"{count}; a CSV file's first line must name them." if csv else f"{count}."
            there = named if public else unnamed
            how = "no" if column not in present else "more than one"
            raise InvalidTable(f"'{label}' has {how} column '{column}'. {there}")


def canonical_ids(column: Any, field: str, what: str = "id") -> pa.Array:
    """Convert example ids to a string array: text unchanged, whole numbers in canonical decimal. `what`: id or unit.
    Raises InvalidRows naming row and rule for null, empty or overlong ids; InvalidTable for other types."""
    import pyarrow as pa
    import pyarrow.compute as pc

    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], pa.string())
    kind = array.type
    if pa.types.is_dictionary(kind):
        array = array.dictionary_decode()
        kind = array.type
    if (
        pa.types.is_integer(kind)
        or pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_string_view(kind)
    ):
        ids = array.cast(pa.string() if array.nbytes < (1 << 31) - 1 else pa.large_string())
    elif pa.types.is_null(kind):
        ids = array.cast(pa.string())
    else:
        raise InvalidTable(f"The {what} column '{field}' must hold text or whole numbers; it holds {kind}.")
    lengths = pc.fill_null(pc.binary_length(ids), 0)
    bad = pc.or_(pc.equal(lengths, 0), pc.greater(lengths, MAX_ID_BYTES))
    total = pc.sum(bad).as_py() or 0
    if total:
        rows = pc.indices_nonzero(bad).slice(0, InvalidRows.shown).to_pylist()
        article = "an" if what[0] in "aeio" else "a"
        long = f"{article} {what} must be between 1 and {MAX_ID_BYTES} bytes long"
        rules = [f"is empty: each row needs {article} {what}" if not lengths[row].as_py() else long for row in rows]
        raise InvalidRows([RowProblem(row, field, rule) for row, rule in zip(rows, rules, strict=True)], total)
    return ids


def duplicate_rows(ids: pa.Array) -> list[int]:
    """List the rows (0-based) whose id occurs in an earlier row."""
    import numpy as np

    if len(ids.unique()) == len(ids):
        return []
    codes = ids.dictionary_encode().indices.to_numpy(zero_copy_only=False)
    first = np.unique(codes, return_index=True)[1]
    repeated = np.ones(len(codes), dtype=bool)
    repeated[first] = False
    return [int(i) for i in np.flatnonzero(repeated)]


def refuse_duplicates(ids: pa.Array, field: str) -> None:
    """Raise InvalidRows if an id occurs twice in one table."""
    rows = duplicate_rows(ids)
    if rows:
        raise InvalidRows([RowProblem(row, field, "this id occurred in an earlier row") for row in rows], len(rows))
