"""`check`: the owner's look at a file, which says that it is not private and sends, stores and charges nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from labels_party.labels import file_check
from labels_party.labels.file_sentences import NOTICE
from tests.support.labels_cli import Result, Run, arguments, refused

RNG = np.random.default_rng(17)


def written(folder: Path, table: pa.Table, kind: str = "parquet") -> Path:
    path = folder / f"labels.{kind}"
    if kind == "csv":
        pyarrow.csv.write_csv(table, path)
    else:
        pq.write_table(table, path)
    return path


def table(labels: Any, ids: Any = None) -> pa.Table:
    return pa.table({"id": ids or [f"c{i}" for i in range(len(labels))], "amount": labels})


def look(run: Run, path: Path, *more: str) -> Result:
    return run("check", "--labels", str(path), "--id-column", "id", "--label-column", "amount", *more)


def said(result: Result) -> str:
    return " ".join(result.out.split())


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_cents_are_recognised(run: Run, home: Path, tmp_path: Path, kind: str) -> None:
    cents = RNG.integers(100, 40_000, 1000)
    cents[:260] = RNG.integers(0, 400, 260)
    path = written(tmp_path, table(cents.tolist()), kind)
    result = look(run, path, "--domain", "0:400")
    assert result.code == 0, result.err
    told = said(result)
    share = round(100 * float((cents > 400).mean()))
    assert f"These look like cents: {share} % lie above 400; divided by 100, 100 % lie inside the domain." in told
    assert NOTICE in told
    assert not (home / "keys").exists()  # nothing was made, so nothing was charged


def test_euros_are_not_called_cents(run: Run, tmp_path: Path) -> None:
    path = written(tmp_path, table(RNG.exponential(60, 5000).round(2).tolist()))
    told = said(look(run, path, "--domain", "0:400"))
    assert "cents" not in told
    assert "lie above 400 and 0 % below 0" in told


def test_a_domain_is_suggested_and_it_is_said_that_it_is_published(run: Run, tmp_path: Path) -> None:
    found = look(run, written(tmp_path, table(RNG.integers(0, 378, 10_000).tolist())), "--json").json
    assert found["suggested_domain"] == "0:400"
    assert found["private"] is False
    assert any("published with every message" in sentence for sentence in found["says"])
    half = look(run, written(tmp_path, table((RNG.integers(0, 118, 5000) / 2).tolist())), "--json").json
    assert half["suggested_domain"] == "0:60:0.5"
    negative = look(run, written(tmp_path, table(RNG.integers(-190, 200, 5000).tolist())), "--json").json
    assert negative["suggested_domain"] == "-200:200"
    names = look(run, written(tmp_path, table(["toys", "books", "books", "garden"] * 50)), "--json").json
    assert (names["suggested_domain"], names["ready"]) == ("books,garden,toys", True)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_what_privatize_would_refuse_is_counted_and_located(run: Run, tmp_path: Path, kind: str) -> None:
    ids = ["a", "b", "a", "", "e", "f"]
    labels = [1.0, None, 3.0, 4.0, -5.0, 2.0]
    path = written(tmp_path, table(labels, ids), kind)
    result = look(run, path, "--json")
    assert result.code == 1
    found = result.json
    assert (found["rows"], found["ids"]["repeated"], found["ids"]["shown"]) == (6, 1, ["a"])
    assert (found["ids"]["empty"], found["ids"]["first_empty"]) == (1, 3)
    assert (found["labels"]["empty"], found["labels"]["first_empty"], found["labels"]["negative"]) == (1, 1, 1)
    assert (found["ready"], len(found["refused"])) == (False, 3)
    told = said(look(run, path))
    assert "1 row has no label (the first is row 2)" in told
    assert "refunds?" in told
    out = tmp_path / "m.parquet"
    asked = arguments(path, str(out), id_column="id", label_column="amount", out=str(out))
    assert run(*asked).code == 2  # as it was said


def test_a_list_of_examples_and_units(run: Run, tmp_path: Path) -> None:
    rows = pa.table({"id": ["a", "b", "c"], "amount": [1, 2, 3], "who": ["x", "x", ""]})
    path, listed = written(tmp_path, rows), tmp_path / "ids.csv"
    listed.write_text("id\na\nb\nd\n", encoding="utf-8")
    result = look(run, path, "--examples", str(listed), "--json")
    assert result.code == 1
    assert [s.split(" has ")[0] for s in result.json["refused"]] == ["1 id", "1 id"]
    told = look(run, path, "--unit-column", "who", "--max-examples-per-unit", "1", "--json").json
    assert (told["units"]["distinct"], told["units"]["most"], told["units"]["empty"]) == (1, 2, 1)
    beyond = "1 of 3 examples (33 %) are beyond the 1 that one who may have over the population's lifetime: they "
    assert any(s.startswith(f"{beyond}cannot be sealed without a missing-label value.") for s in told["refused"])
    listed.write_text("id,who\na,x\nb,x\nc,y\nd,x\n", encoding="utf-8")  # then units come with the list
    more = ("--unit-column", "who", "--max-examples-per-unit", "1", "--missing-label", "0", "--json")
    told = look(run, path, "--examples", str(listed), *more).json
    assert not told["refused"]
    assert any(s.startswith("2 of 4 examples (50 %) are beyond") and "they count as 0." in s for s in told["says"])


def test_what_lies_outside_is_refused_where_it_would_be(run: Run, tmp_path: Path) -> None:
    path = written(tmp_path, table([1, 2, 11]))
    assert look(run, path, "--domain", "0:10").code == 0
    strict = look(run, path, "--domain", "0:10", "--out-of-domain", "refuse", "--json")
    assert (strict.code, strict.json["labels"]["above"]) == (1, 1)


def test_bad_files_and_columns_are_refused_as_privatize_refuses_them(run: Run, tmp_path: Path) -> None:
    path = written(tmp_path, pa.table({"id": [1.5, 2.5], "amount": [1, 2]}))
    refused(look(run, path), 2, "id")
    refused(run("check", "--labels", str(path), "--id-column", "id", "--label-column", "nothing"), 2, "nothing")
    refused(look(run, tmp_path / "none.csv"), 2, "none.csv")
    refused(look(run, path, "--domain", "nonsense"), 2, "nonsense")


def test_a_long_file_is_looked_at_in_parts(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sample for quantiles stays bounded, and says the same."""
    monkeypatch.setattr(file_check, "KEPT", 1000)
    values = RNG.permutation(300_000) % 500
    path = written(tmp_path, table(values.tolist()))
    found = look(run, path, "--json").json
    assert (found["rows"], found["labels"]["zero"]) == (300_000, 600)
    assert found["suggested_domain"] == "0:500"


def test_after_a_release_the_paid_prior_says_so_free_of_charge(run: Run, home: Path, tmp_path: Path) -> None:
    """The same mistake, unseen: cents in a domain of euros."""
    cents = (RNG.exponential(60, 20_000) * 100).astype(int)
    path = written(tmp_path, table(cents.tolist()))
    out, page = tmp_path / "m.parquet", tmp_path / "m.html"
    more = {"id_column": "id", "label_column": "amount", "domain": "0:400", "mechanism": "rr-on-bins"}
    made = run(*arguments(path, str(out), **more, prior="estimate", epsilon="2"))
    assert made.code == 0, made.err
    told = "of the labels pile up at the upper end of the domain, 400, by the private prior"
    assert told in said(made)
    assert told in said(run("inspect", str(out)))
    found = run("inspect", str(out), "--json").json
    assert [(h["end"], h["label"]) for h in found["heaps"]] == [("upper", 400.0)]
    assert run("statement", found["release"], "--out", str(page)).code == 0
    assert told in " ".join(page.read_text(encoding="utf-8").split())
    assert run("budget", "--json").json[0]["epsilon_spent_at_most"] == "2"
