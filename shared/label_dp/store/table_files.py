"""Tables at addresses: a file, the files of a folder or a pattern, here or in a store, and those of a lake table. What
is written appears whole, by one commit."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, TextIO
from urllib.parse import unquote

from label_dp.columnar.csv_types import exact_type
from label_dp.columnar.frames import as_table
from label_dp.columnar.parts import TablePart, TableParts, TablePath
from label_dp.columnar.rows import MOST_ROWS
from label_dp.errors import InvalidFile, InvalidInput, Unavailable
from label_dp.named_modules import installed
from label_dp.store import table_addresses
from label_dp.store.objects.bucket import Bucket

if TYPE_CHECKING:
    import pyarrow as pa

WILD = re.compile(r"[*?\[]")
PART = "part-00000.parquet"
COMMITS = "lake_commits"
END_OF_STREAM = b"\xff\xff\xff\xff" + bytes(4)
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


def table_at(text: str | os.PathLike[str], last: table_addresses.Last | None = None) -> TablePath:
    """Find the table at an address: a local file is its path; else its files, listed once, and a version that stays.

    `last` gives the snapshot of a lake table that the last batch was made of. Raises InvalidInput, InvalidFile,
    InvalidTable, Unavailable.
    """
    address = table_addresses.TableAddress.parse(text)
    if address.kind == "store":
        with _named(address):
            return _in_store(address)
    if address.kind in (table_addresses.DELTA, table_addresses.ICEBERG):
        parts: TableParts = _lakes(address).lake_parts(address, last)
        return parts
    if address.kind == table_addresses.STREAM:
        return _of_stream(sys.stdin)
    path = Path(address.place)
    if path.is_dir():
        return _parts(str(path), _local(path, path.rglob("*")))
    if WILD.search(address.place) and not path.exists():
        root = Path(*takewhile(lambda part: not WILD.search(part), path.parts))
        below: list[Path] = []
        for match in root.glob(str(path.relative_to(root))):
            below += [match] if match.is_file() else match.rglob("*")
        return _parts(address.place, _local(root, dict.fromkeys(below)))
    return path


def target_at(text: str) -> Path | table_addresses.TableAddress:
    """Parse where a table is to be written; a file here is its path. Raises InvalidInput."""
    address = table_addresses.TableAddress.parse(text)
    if address.version is not None or address.after is not None or WILD.search(table_addresses.shown(address.place)):
        raise InvalidInput(f"'{address}' names no place to write to: leave the version, or the pattern, out.")
    if address.kind == "store" and table_addresses.shown(address.place).endswith(".csv"):
        raise InvalidInput(f"'{address}': a store is written Parquet; end the name with .parquet, or name a folder.")
    if address.kind == "file":
        return Path(address.place) / (PART if address.place.endswith("/") else "")
    return address


def require_place(
    out: table_addresses.TableAddress, rows: pa.Schema | None, properties: Mapping[str, str], force: bool
) -> None:
    """Refuse an object or a folder of a store that exists; call it before long work. A lake table is appended to, if it
    has the columns of `rows`. Raises InvalidInput and its kinds, Conflict, Unavailable."""
    if out.kind == table_addresses.STREAM:
        return
    if out.kind != "store":
        _lakes(out, COMMITS).require_place(out, rows, properties, force)
        return
    bucket, key = _object(out)
    folder, exists = key.rpartition("/")[0] if key.endswith(PART) else key, False
    with _named(out), suppress(FileNotFoundError):
        others = [stored.key for stored in bucket.listed(folder) if stored.key != key] if key.endswith(PART) else []
        exists = bucket.size(key) >= 0
    if others or (exists and not force):
        how = "name a folder without other files" if others else "give --force to replace it, or choose another name"
        raise InvalidInput(f"'{out}' exists already: {how}.")


def commit(out: table_addresses.TableAddress, file: Path, properties: Mapping[str, str], force: bool) -> None:
    """Put the rows of a Parquet file where the address says, at once or not at all. Raises InvalidInput and its kinds,
    Unavailable."""
    if out.kind == table_addresses.STREAM:
        _send(file, sys.stdout)
        return
    if out.kind != "store":
        _lakes(out, COMMITS).commit(out, file, properties, force)
        return
    bucket, key = _object(out)
    with file.open("rb") as opened, _named(out):
        bucket.send(key, opened)


def _of_stream(stream: TextIO) -> TableParts:
    """Hold the rows of an Arrow IPC stream in memory: tables are read more than once, and labels touch no disk. Raises
    InvalidFile, InvalidTable."""
    import pyarrow as pa

    try:
        if stream.isatty():
            raise InvalidFile("Standard input is a terminal; '-' takes an Arrow IPC stream from another program.")
        data = stream.buffer.read()
        if not data.endswith(END_OF_STREAM):  # Arrow itself takes what a killed program left for all of it
            raise OSError
        with pa.ipc.open_stream(data) as reader:
            table = as_table(reader.read_all())
    except (pa.ArrowException, OSError):  # its text may quote what came
        raise InvalidFile("What came to standard input is no whole Arrow IPC stream.") from None

    def read(columns: Sequence[str]) -> Iterator[pa.Table]:
        rows = table.select(list(columns))
        return (rows.slice(at, MOST_ROWS) for at in range(0, rows.num_rows, MOST_ROWS))

    part = TablePart("standard input", io.BytesIO, table.nbytes, table.num_rows, read=read)
    return TableParts("standard input", (part,), table.schema)


def _send(file: Path, stream: TextIO) -> None:
    """Send the rows of a Parquet file as an Arrow IPC stream."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetFile(file) as parquet, pa.ipc.new_stream(stream.buffer, parquet.schema_arrow) as writer:
        for batch in parquet.iter_batches():
            writer.write_batch(batch)


@contextmanager
def _named(address: table_addresses.TableAddress) -> Iterator[None]:
    """Say which store failed."""
    try:
        yield
    except Unavailable:
        raise table_addresses.store_fails(address) from None


def _object(out: table_addresses.TableAddress) -> tuple[Bucket, str]:
    """Return the bucket, and the key of the one object that is written: that of a file, or one in a folder."""
    place = table_addresses.store_address(out.place)
    name = place.prefix if place.prefix.endswith(".parquet") else f"{place.prefix}/{PART}".lstrip("/")
    return table_addresses.bucket_at(place), name


def _lakes(address: table_addresses.TableAddress, part: str = "lakes") -> Any:
    module = installed(f"label_dp.companions.{part}")
    if module is None:
        raise InvalidInput(f"'{address}': the part for Delta and Iceberg tables is not installed.")
    return module


def _local(root: Path, paths: Iterable[Path]) -> Iterator[tuple[PurePosixPath, TablePart]]:
    for path in paths:
        if path.is_file():
            yield PurePosixPath(path.relative_to(root)), table_addresses.file_part(path)


def _in_store(address: table_addresses.TableAddress) -> TableParts:
    place = table_addresses.store_address(address.place)
    bucket, key, label = table_addresses.bucket_at(place), place.prefix, str(address)
    options = address.place.partition("?")[2]
    base = label.partition("://")[0] + "://" + label.partition("://")[2].partition("/")[0]
    if not WILD.search(key):
        try:
            return TableParts.of(label, [table_addresses.stored_part(bucket, label, key, bucket.size(key), options)])
        except FileNotFoundError:
            root, objects = key, bucket.listed(key)
    else:
        root = "/".join(takewhile(lambda part: not WILD.search(part), key.split("/")))
        pattern = _pattern(key)
        objects = [stored for stored in bucket.listed(root) if pattern.fullmatch(stored.key)]
    listing = [(PurePosixPath(stored.key[len(root) :].strip("/")), stored) for stored in objects]
    return _parts(
        label,
        (
            (below, table_addresses.stored_part(bucket, f"{base}/{s.key}", s.key, s.size, options))
            for below, s in listing
            if below.name
        ),
    )


def _pattern(key: str) -> re.Pattern[str]:
    """Return a pattern of keys, in which `**` alone crosses a slash; a folder stands for what is below it."""
    signs = {"**": ".*", "**/": "(?:.*/)?", "*": "[^/]*", "?": "[^/]"}
    text = "".join(
        signs.get(part) or (part.replace("[!", "[^") if part.startswith("[") and len(part) > 2 else re.escape(part))
        for part in re.findall(r"\*\*/|\*\*|\*|\?|\[[^]]+]|.", key, re.DOTALL)
    )
    return re.compile(text + "(?:/.*)?", re.DOTALL)


def _parts(label: str, files: Iterable[tuple[PurePosixPath, TablePart]]) -> TableParts:
    """Take the files of a folder by name, without those that begin with a dot or an underscore. A folder NAME=VALUE is
    a column of the files below it. Raises InvalidFile."""
    ordered = sorted(files, key=lambda one: str(one[0]))
    for below, part in ordered:
        if "_delta_log" in below.parts:
            raise InvalidFile(f"'{label}' is a Delta table: name it delta:{label}, so that only its rows are read.")
        if below.parts[-2:-1] == ("metadata",) and part.name.endswith(".metadata.json"):
            raise InvalidFile(
                f"'{label}' is an Iceberg table: name it by its catalog, iceberg:CATALOG/NAMESPACE.TABLE, so that only "
                "its rows are read."
            )
    visible = [one for one in ordered if not any(part[0] in "._" for part in one[0].parts)]
    if not visible:
        raise InvalidFile(f"There is no file at '{label}', or these credentials do not show it.")
    return TableParts.of(label, _with_columns(visible))


def _with_columns(files: Sequence[tuple[PurePosixPath, TablePart]]) -> list[TablePart]:
    """Give the parts the columns that their folders name."""
    import pyarrow as pa

    cells = [dict(name.split("=", 1) for name in below.parts[:-1] if "=" in name) for below, _ in files]
    columns: dict[str, list[pa.Scalar]] = {}
    for name in cells[0]:
        texts = [None if one.get(name) in (None, NO_VALUE) else unquote(one[name]) for one in cells]
        column = pa.chunked_array([pa.array(texts, pa.string())])
        columns[name] = list(column.cast(exact_type(column)))
    return [
        replace(part, values={name: column[at] for name, column in columns.items()})
        for at, (_, part) in enumerate(files)
    ]
