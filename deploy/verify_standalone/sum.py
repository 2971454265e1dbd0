"""Sums by group: what every grouping cost, and that each example is in one cell of it."""

from __future__ import annotations

import itertools
import re
from fractions import Fraction
from typing import Any

from .exact import NANO, units
from .kind import Answer, Kind
from .median import REPLACE_ONE
from .members import MANY, count, listed, matching, members, text
from .refusal import refuse

MOST_GROUPINGS, MOST_COLUMNS, MOST_CELLS, MOST_TEXT = 16, 8, 10_000, 200
WHOLE = re.compile("0|-?[1-9][0-9]{0,18}", re.ASCII)


def check_sums(answer: Answer) -> str:
    """A line for the groupings."""
    p = members(answer.parameters, ("by", "epsilon", "cells", "rows"), "sums")
    result = members(answer.result, ("columns", "groupings"), "the result of sums")
    by = [_columns(columns) for columns in listed(p["by"], 1, MOST_GROUPINGS, "the list of groupings")]
    if len({frozenset(columns) for columns in by}) != len(by):
        refuse("a grouping comes twice")
    shares = [
        units(part, NANO, "ε of a grouping") for part in listed(p["epsilon"], len(by), len(by), "the shares of ε")
    ]
    if not all(shares) or answer.domain.k < 2:
        refuse("every grouping costs ε, and labels differ")
    answer.check(Fraction(sum(shares), NANO), Fraction(0), REPLACE_ONE)
    examples = count(p["rows"], 1, MANY, "the number of rows")
    sizes = _sizes(result["columns"], list(dict.fromkeys(name for columns in by for name in columns)))
    groupings = listed(result["groupings"], len(by), len(by), "the list of groupings")
    for columns, cells, grouping in zip(
        by, listed(p["cells"], len(by), len(by), "the numbers of cells"), groupings, strict=True
    ):
        _check_grouping(grouping, [sizes[name] for name in columns], count(cells, 1, MOST_CELLS, "cells"), examples)
    return f"sums of {examples} labels in {sum(p['cells'])} cells of {len(by)} groupings, ε shared by these"


def _columns(names: Any) -> list[str]:
    columns = [text(name, "a column", least=0, most=MOST_TEXT) for name in listed(names, 1, MOST_COLUMNS, "a grouping")]
    if len(set(columns)) != len(columns):
        refuse("a grouping names a column twice")
    return columns


def _sizes(columns: Any, names: list[str]) -> dict[str, int]:
    """How many values each column has."""
    sizes = {}
    for name, column in zip(names, listed(columns, len(names), len(names), "the list of columns"), strict=True):
        if members(column, ("name", "values"), "a column")["name"] != name:
            refuse("columns come in the order of their first use")
        values = listed(column["values"], 1, MOST_CELLS, "the values of a column")
        for value in values:
            if value is not None:
                text(value, "a value", least=0, most=MOST_TEXT)
        if len(set(values)) != len(values) or None in values[:-1]:
            refuse("the values of a column differ, and none comes last")
        sizes[name] = len(values)
    return sizes


def _check_grouping(grouping: Any, sizes: list[int], cells: int, examples: int) -> None:
    members(grouping, ("cells", "n", "sums"), "a grouping")
    places = listed(grouping["cells"], cells, cells, "the list of cells")
    for cell in places:
        for code, size in zip(listed(cell, len(sizes), len(sizes), "a cell"), sizes, strict=True):
            count(code, 0, size - 1, "the place of a value")
    if any(one >= two for one, two in itertools.pairwise(places)):
        refuse("cells are not in ascending order")
    counts = [count(n, 1, MANY, "the examples of a cell") for n in listed(grouping["n"], cells, cells, "the counts")]
    if sum(counts) != examples:
        refuse("an example is not in one cell of each grouping")
    for noisy in listed(grouping["sums"], cells, cells, "the list of sums"):
        matching(noisy, WHOLE, "a sum")


KIND = Kind("sum", check_sums)
