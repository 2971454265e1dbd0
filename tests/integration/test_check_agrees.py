"""`check` says of a file what `privatize` does with it: each case is looked at by one and sent to the other."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.labels_cli import Run, arguments

pytestmark = pytest.mark.extended

IDS = ["a", "b", "c", "d"]
CLASSES = "books,garden,toys"


def table(label: Any, ids: Any = None, **more: Any) -> pa.Table:
    return pa.table({"example_id": IDS if ids is None else ids, "label": label, **more})


def narrow(kind: Any, *numbers: float) -> pa.Array:
    return pa.array(np.array(numbers, kind))


def csv(*labels: str) -> str:
    return "example_id,label\n" + "".join(f"c{i},{label}\n" for i, label in enumerate(labels))


REFUSE = ("--out-of-domain", "refuse")
MISSING = ("--missing-label", "0")
UNITS = ("--unit-column", "who", "--max-examples-per-unit", "2")

# what the case is, the file, the domain, further options, and whether it is taken
CASES: dict[str, tuple[pa.Table | str, str, Sequence[str], bool]] = {
    "numbers": (table([1, 2, 3, 11]), "0:10", (), True),
    "numbers beyond a domain that refuses": (table([1, 2, 3, 11]), "0:10", REFUSE, False),
    "prices in a domain of tenths": (table(narrow(np.float32, 0.1, 0.3, 0.7, 0.9)), "0.1:0.9:0.1", REFUSE, True),
    "half floats": (table(narrow(np.float16, 0.1, 0.3, 0.7, 0.9)), "0.1:0.9:0.1", REFUSE, True),
    "sums": (table([sum([0.1] * i) for i in (0, 3, 8, 10)]), "0:1:0.1", REFUSE, True),
    "a double above the end": (table([0.1, 0.2, 0.3, 1.0000000000000002]), "0:1:0.1", REFUSE, False),
    "decimals up to the end": (table([Decimal(5 * i) / 100 for i in (0, 1, 22, 23)]), "0:1.15:0.05", REFUSE, True),
    "a decimal above the end": (table([Decimal(i) / 100 for i in (0, 5, 115, 116)]), "0:1.15:0.05", REFUSE, False),
    "not a number": (table([1.0, 2.0, float("nan"), 3.0]), "0:10", (), False),
    "infinite": (table([1.0, 2.0, float("inf"), 3.0]), "0:10", (), False),
    "no label": (table([1.0, None, 2.0, 3.0]), "0:10", (), False),
    "no labels at all": (table(pa.nulls(4)), "0:10", (), False),
    "whole numbers of text": (table(["1", "2", "+3", "04"]), "0:10", (), True),
    "text of numbers with one that is none": (table(["1", "2", "three", "4"]), "0:10", (), False),
    "a view of text": (table(pa.array(["1", "2", "3", "4"]).cast(pa.string_view())), "0:10", (), True),
    "an empty text in a view": (table(pa.array(["1", "", "3", "4"]).cast(pa.string_view())), "0:10", (), False),
    "a dictionary of numbers": (table(pa.array([1.5, 2.5, 1.5, 9.0]).dictionary_encode()), "0:10", (), True),
    "true and false": (table([True, False, True, True]), "0:1", (), False),
    "times": (table(pa.array([1, 2, 3, 4], pa.timestamp("s"))), "0:10", (), False),
    "lists": (table([[1], [2], [3], [4]]), "0:10", (), False),
    "bytes": (table([b"1", b"2", b"3", b"4"]), "0:10", (), False),
    "commas for points": (csv(*(f'"{i},50"' for i in range(40))), "0:100", (), False),
    "commas for thousands": (csv(*(f'"1,{i:03d}.5"' for i in range(40))), "0:2000", (), False),
    "a currency": (csv(*(f"{i % 9} €" for i in range(40))), "0:100", (), False),
    "a hard space": (csv(*(f"{i % 9}\u00a0" for i in range(40))), "0:100", (), False),
    "brackets": (csv(*(f"({i % 9})" for i in range(40))), "0:100", (), False),
    "blanks around": (csv(" 1", "2 ", " 3 "), "0:10", (), True),
    "NA": (csv("1", "NA", "2"), "0:10", (), False),
    "an empty cell": (csv("1", "", "2"), "0:10", (), False),
    "too few fields": ("example_id,label\na,1\nb\n", "0:10", (), False),
    "no rows": ("example_id,label\n", "0:10", (), False),
    "no rows of Parquet": (table(pa.array([], pa.int64()), pa.array([], pa.string())), "0:10", (), False),
    "names": (csv("books", "toys", "garden", "toys"), CLASSES, (), True),
    "one name in all rows": (csv("toys", "toys"), CLASSES, (), True),
    "names in Parquet": (table(["books", "toys", "garden", "toys"]), CLASSES, (), True),
    "a view of names": (table(pa.array(["books", "toys", "toys", "toys"]).cast(pa.string_view())), CLASSES, (), True),
    "a dictionary of names": (
        table(pa.array(["books", "toys", "toys", "toys"]).dictionary_encode()),
        CLASSES,
        (),
        True,
    ),
    "another name": (csv("books", "cars"), CLASSES, (), False),
    "a name with a blank": (csv("books", "toys "), CLASSES, (), False),
    "a name that is missing": (table(["books", None, "toys", "toys"]), CLASSES, (), False),
    "numbers in a domain of names": (table([0, 1, 2, 0]), CLASSES, (), False),
    "names that are to be clipped": (csv("books", "toys"), CLASSES, ("--out-of-domain", "clip"), False),
    "two names": (csv("yes", "no", "no"), "no,yes", (), True),
    "a name of nothing": (csv("NA", "EMEA", "NA"), "NA,EMEA,APAC", (), True),
    "an id that repeats": (table([1, 2, 3, 4], ["a", "b", "a", "d"]), "0:10", (), False),
    "an id that is missing": (table([1, 2, 3, 4], ["a", None, "c", "d"]), "0:10", (), False),
    "an id that is empty": (table([1, 2, 3, 4], ["a", "", "c", "d"]), "0:10", (), False),
    "an id that is too long": (table([1, 2, 3, 4], ["a", "b" * 513, "c", "d"]), "0:10", (), False),
    "whole numbers as ids": (table([1, 2, 3, 4], [1, 2, 3, 4]), "0:10", (), True),
    "fractions as ids": (table([1, 2, 3, 4], [1.0, 2.0, 3.0, 4.0]), "0:10", (), False),
    "a view of ids": (table([1, 2, 3, 4], pa.array(IDS).cast(pa.string_view())), "0:10", (), True),
    "a dictionary of ids": (table([1, 2, 3, 4], pa.array(IDS).dictionary_encode()), "0:10", (), True),
    "units": (table([1, 2, 3, 4], who=["x", "x", "y", "z"]), "0:10", UNITS, True),
    "too many of a unit": (table([1, 2, 3, 4], who=["x", "x", "x", "z"]), "0:10", UNITS, False),
    "too many of a unit that are missing": (table([1, 2, 3, 4], who=["x"] * 4), "0:10", (*UNITS, *MISSING), True),
    "a unit that is missing": (table([1, 2, 3, 4], who=["x", None, "y", "z"]), "0:10", UNITS, False),
    "a unit that is too long": (table([1, 2, 3, 4], who=["x", "x" * 513, "y", "z"]), "0:10", UNITS, False),
    "a bound without a unit": (table([1, 2, 3, 4]), "0:10", ("--max-examples-per-unit", "2"), False),
    "a missing label beyond the domain": (table([1, 2, 3, 4]), "0:10", ("--missing-label", "11"), False),
    "a missing label between values": (table([1, 2, 3, 4]), "0:10", ("--missing-label", "0.5"), False),
    "a missing label that is no name": (csv("books", "toys"), CLASSES, ("--missing-label", "cars"), False),
    "listed": (table([1, 2, 3, 4]), "0:10", ("--examples", "abcd"), True),
    "listed with one without a label": (table([1, 2, 3, 4]), "0:10", ("--examples", "abcde"), False),
    "listed with a missing label": (table([1, 2, 3, 4]), "0:10", ("--examples", "abcde", *MISSING), True),
    "not listed": (table([1, 2, 3, 4]), "0:10", ("--examples", "abc", *MISSING), False),
    "listed twice": (table([1, 2, 3, 4]), "0:10", ("--examples", "abcda"), False),
    "listed without their units": (table([1, 2, 3, 4]), "0:10", ("--examples", "abcd", *UNITS), False),
    "a list of too many of a unit": (table([1, 2, 3, 4]), "0:10", ("--examples", "abcd/x", *UNITS), False),
}


def asked(more: Sequence[str], folder: Path) -> list[str]:
    """The options; a list of examples, spelled as its ids (and behind a slash their unit), as a file."""
    found = list(more)
    if "--examples" in found:
        at = found.index("--examples") + 1
        ids, _, unit = found[at].partition("/")
        listed = folder / "examples.csv"
        rows = [f"{i},{unit}" if unit else i for i in ids]
        listed.write_text("\n".join(["example_id,who" if unit else "example_id", *rows, ""]), encoding="utf-8")
        found[at] = str(listed)
    return found


def written(content: pa.Table | str, folder: Path) -> Path:
    if isinstance(content, str):
        path = folder / "labels.csv"
        path.write_text(content, encoding="utf-8")
    else:
        path = folder / "labels.parquet"
        pq.write_table(content, path)
    return path


@pytest.mark.parametrize("case", CASES)
def test_check_says_what_privatize_does(case: str, run: Run, tmp_path: Path) -> None:
    content, domain, more, taken = CASES[case]
    file, options = written(content, tmp_path), asked(more, tmp_path)
    about = ["--labels", str(file), "--id-column", "example_id", "--label-column", "label", "--domain", domain]
    looked = run("check", *about, *options)
    assert "internal error" not in looked.err
    done = run(*arguments(file, str(tmp_path / "m.parquet"), domain=domain, mechanism=None), *options)
    assert (done.code == 0) == taken, done.err
    assert (looked.code == 0) == taken, looked.out + looked.err
    assert ("privatize would take it as it is" in looked.out) == taken
    if looked.code == 2:
        assert looked.err == done.err  # the very refusal


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (["a", "b", "a"] * 500 + ["1"], "1 row has a label that is a number"),
        (["a", "b" * 101], "no domain can name"),
    ],
)
def test_without_a_domain_classes_are_those_that_one_can_name(
    labels: list[str], words: str, run: Run, tmp_path: Path
) -> None:
    file = written(csv(*labels), tmp_path)
    looked = run("check", "--labels", str(file), "--id-column", "example_id", "--label-column", "label")
    assert looked.code == 1
    assert words in " ".join(looked.out.split())


@pytest.mark.parametrize("spelling", ['"{},50"', '"1,{:03d}.5"', "{} €", "{}\u00a0", "({})"])
def test_without_a_domain_numbers_in_another_spelling_are_asked_about(spelling: str, run: Run, tmp_path: Path) -> None:
    about = ["--id-column", "example_id", "--label-column", "label"]
    odd = written(csv(*(spelling.format(i % 90) for i in range(500))), tmp_path)
    assert "Are they numbers?" in run("check", "--labels", str(odd), *about).out
    names = written(csv(*("books", "7 days", "b2") * 50), tmp_path)
    assert "Are they numbers?" not in run("check", "--labels", str(names), *about).out


def test_prices_in_narrow_floats_are_seen_as_prices(run: Run, tmp_path: Path) -> None:
    prices = np.random.default_rng(5).integers(0, 4000, 2000) / 100
    file = written(table(prices.astype(np.float32), [f"c{i}" for i in range(2000)]), tmp_path)
    looked = run("check", "--labels", str(file), "--id-column", "example_id", "--label-column", "label")
    assert "The labels are multiples of 0.01 from 0" in " ".join(looked.out.split()), looked.out


def test_of_a_domain_of_names_it_is_said_which_occur(run: Run, tmp_path: Path) -> None:
    file = written(csv("toys", "books", "toys"), tmp_path)
    about = ["--labels", str(file), "--id-column", "example_id", "--label-column", "label", "--domain", CLASSES]
    assert "2 of the 3 classes of the domain occur; no label is garden." in " ".join(run("check", *about).out.split())
    assert run("check", *about, "--json").json["labels"]["classes"] == {"toys": 2, "books": 1}
