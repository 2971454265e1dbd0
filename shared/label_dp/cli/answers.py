"""Signed answers of every kind on both command lines: as text, never as data."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from label_dp.cli.layout import number
from label_dp.cli.output import say, table
from label_dp.errors import InvalidFile, InvalidInput
from label_dp.numbers import within
from label_dp.store.output_files import replacing

RANK_ERROR = "rank_error_19_of_20"
IN_TABLES = ("query", "features", "by", "cells")  # parameters that `show_result` shows
MOST_ROWS = 40  # of a grouping
MOST_NAME = 80  # letters of a grouping's file
Csv = Annotated[
    Path | None, typer.Option("--csv", metavar="FOLDER", help="Write sums by group too: a CSV file for each grouping.")
]
Parquet = Annotated[
    Path | None,
    typer.Option("--parquet", metavar="FOLDER", help="Write sums by group too: a Parquet file for each grouping."),
]


def headline(data: Mapping[str, Any]) -> str:
    """Format ε per unit if a unit may have several examples; else nothing."""
    unit = data["unit"]
    if unit["epsilon_per_unit"] is None:
        return ""
    return f": all labels of one {unit['column']} together have spent ε {unit['epsilon_per_unit']} at most"


def budget_rows(data: Mapping[str, Any]) -> list[list[str]]:
    """Format the spent budget of a document: per example and, if a unit has several, per unit."""
    unit, rows = data["unit"], [["budget", f"{data['epsilon_spent']} of {data['epsilon_lifetime']} spent per example"]]
    if unit["epsilon_per_unit"] is not None:
        each = f"{unit['max_examples']:,} example{'' if unit['max_examples'] == 1 else 's'} each at most"
        rows += [[f"per {unit['column']}", f"ε {unit['epsilon_per_unit']} at most ({each})"]]
        rows += [["beyond that", f"{unit['examples_beyond']:,} examples, which count as the missing label"]]
    return rows


def answer_rows(parameters: Mapping[str, Any], result: Mapping[str, Any], facts: Mapping[str, Any]) -> list[list[str]]:
    """Format the name and text of each parameter and each figure of the result; `pieces` replaces the map of a
    calibration."""
    rows = [[name.replace("_", " "), _said(v)] for name, v in parameters.items() if v and name not in IN_TABLES]
    if "median" in result:
        rows += [["median", result["median"] or "none found: too few labels agree at this ε and δ"]]
    if RANK_ERROR in facts:
        rows += [["rank error", f"{facts[RANK_ERROR]:,} labels or fewer, 19 times in 20"]]
    if "pieces" in result:
        rows += [["values of the map", f"{result['pieces']:,}"]]
    if "value" in result:
        rows += [["value", str(result["value"])]]
    return rows


def show_result(parameters: Mapping[str, Any], result: Mapping[str, Any]) -> None:
    """Print the tables of a result: the query of a prediction, the sides of a rectangle, the weights of a model."""
    if parameters.get("query"):
        query = [[k, "missing, or none of its values" if v is None else v] for k, v in parameters["query"].items()]
        table("Query", ["feature", "value"], query)
    ranges = {f["name"]: " to ".join(f.get("range", [])) for f in parameters.get("features", [])}
    if "sides" in result:
        sides = [[s["name"], _end(s["from"]), _end(s["to"]), ranges.get(s["name"], "")] for s in result["sides"]]
        table("Inside", ["feature", "from", "to", "range"], sides)
        if not result["found"]:
            say("A side was not found, so nothing is inside: too few examples share one at this ε and δ.")
        elif any(side["first"] > side["last"] for side in result["sides"]):
            say("A side ends before it begins, so nothing is inside: too few examples are positive, or many are equal.")
    for grouping in result.get("tables", []):
        rows = grouping["rows"]
        heads = [*grouping["by"], "examples", "mean", "sum", "19 times in 20", ""]
        lines = [
            [
                *("none" if row[name] is None else row[name] for name in grouping["by"]),
                f"{row['n']:,}",
                *map(number, estimates(row)),
                f"{number(row['sum_from'])} to {number(row['sum_to'])}",
                "says nothing" if row["says_nothing"] else "",
            ]
            for row in rows[:MOST_ROWS]
        ]
        table(f"By {' and '.join(grouping['by'])}", heads, lines)
        if len(rows) > MOST_ROWS:
            say(f"{len(rows) - MOST_ROWS:,} more rows; --csv FOLDER writes all of them.")
    if "weights" in result:
        weights = [
            ["=".join(w[k] for k in ("name", "value") if w[k] is not None), w["weight"]] for w in result["weights"]
        ]
        table("Weights", ["feature", "weight"], [["constant", result["constant"]], *weights])


def _end(number: Any) -> str:
    return "not found" if number is None else str(number)


def _said(value: Any) -> str:
    """Format a parameter; the options of a shape as NAME=VALUE."""
    if isinstance(value, dict):
        return ", ".join(f"{k}={v}" for k, v in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def estimates(row: Mapping[str, Any]) -> tuple[float, float]:
    """Return mean and sum of a group with the digits that their interval leaves."""
    width = row["sum_to"] - row["sum_from"]
    return within(row["mean"], width / row["n"]), within(row["sum"], width)


def write_groupings(
    results: Sequence[Mapping[str, Any]], csv: Path | None, parquet: Path | None, *, force: bool = False
) -> list[str]:
    """Write each grouping of an answer to a file in these folders, which are made if missing; returns the files.

    All files are complete before the first gets its name. Raises InvalidInput (nothing to write, a file exists without
    `force`), InvalidFile.
    """
    folders = [(folder, ending) for folder, ending in ((csv, "csv"), (parquet, "parquet")) if folder is not None]
    if not folders:
        return []
    groupings = [result.get("tables") for result in results]
    if len(groupings) != 1 or not groupings[0]:
        raise InvalidInput("--csv and --parquet are for one answer with sums by group, such as `sums` gives.")
    fresh = [folder for folder in dict.fromkeys(folder for folder, _ in folders) if _make(folder)]
    files = []
    try:
        with ExitStack() as stack:
            for folder, ending in folders:
                for name, grouping in zip(_file_names(groupings[0]), groupings[0], strict=True):
                    path = folder / f"{name}.{ending}"
                    _write(grouping, stack.enter_context(replacing(path, force)))
                    files.append(str(path))
    except BaseException:
        for folder in fresh:
            with suppress(OSError):
                folder.rmdir()  # keeps one that has files
        raise
    return files


def show_written(files: Sequence[str]) -> None:
    """Print the files that were written."""
    for file in files:
        say(f"written: {file}")


def _make(folder: Path) -> bool:
    """Make a folder; returns False if it exists."""
    if folder.suffix.lower() in (".csv", ".parquet"):
        raise InvalidInput(f"'{folder}' is to be a folder, with a file for each grouping; name it without ending.")
    if folder.is_dir():
        return False
    try:
        folder.mkdir()
    except OSError as error:
        raise InvalidFile(f"The folder '{folder}' cannot be made ({error.strerror}).") from None
    return True


def _file_names(groupings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a different name for each grouping, of its columns, that any file system takes."""
    names: list[str] = []
    for grouping in groupings:
        plain = "-".join(re.sub(r"[^\w.-]", "_", name) for name in grouping["by"])
        name = plain = plain[:MOST_NAME].lstrip(".") or "grouping"
        again = 2
        while name.casefold() in map(str.casefold, names):
            name, again = f"{plain}-{again}", again + 1
        names.append(name)
    return names


def _write(grouping: Mapping[str, Any], path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyarrow import csv as arrow_csv

    figures = {"n": pa.int64(), **dict.fromkeys(("sum", "mean", "sum_from", "sum_to"), pa.float64())}
    schema = pa.schema(
        [*dict.fromkeys(grouping["by"], pa.string()).items(), *figures.items(), ("says_nothing", pa.bool_())]
    )
    columns = pa.Table.from_pylist(grouping["rows"], schema)
    if path.suffix == ".csv":
        arrow_csv.write_csv(columns, path, arrow_csv.WriteOptions(quoting_style="needed"))
    else:
        pq.write_table(columns, path)
