"""`audit-privacy` on a real population: what it bounds over HTTP, planted randomizers that it must find, and that
nothing of the population is read or changed but its declaration."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from labels_party.companions.privacy_audit import NOT_COVERED
from labels_party.mechanisms import one_bit, sampling
from labels_party.mechanisms import prior as prior_module
from tests.support.labels import label_table
from tests.support.labels_cli import Run, arguments, refused

pytestmark = pytest.mark.extended

FEW = (
    "--trials",
    "4000",
    "--prior-trials",
    "50",
)  # 2800 rows of each label decide: they show 0.8 of an ε of 1


def audit(run: Run, *words: str, population: str = "shop") -> Any:
    result = run("audit-privacy", "--population", population, *FEW, *words, "--json")
    assert result.code in (0, 1), result.err
    assert (result.code == 0) == (result.json["verdict"] == "consistent")
    return result.json


def row(report: Any, mechanism: str) -> Any:
    (found,) = [one for one in report["mechanisms"] if one["mechanism"] == mechanism]
    return found


def break_labels(home: Path) -> None:
    """Whoever opens a label of this party fails from here on."""
    paths = [path for path in (home / "labels").rglob("*") if path.is_file()]
    assert paths
    for path in paths:
        path.write_bytes(b"no labels")


def history(run: Run) -> tuple[Any, Any, Any]:
    """What the ledger is: each event with its hash, and what is spent and left."""
    words = ("audit", "export", "--out", "history.json", "--force")
    assert run(*words).code == 0
    return (
        run("audit", "show", "--json").out,
        run("audit", "verify", "--json").json["head"],
        run("budget", "--json").out,
    )


def test_a_population_is_audited_and_nothing_of_it_is_read_or_changed(
    run: Run, labels: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(*arguments(labels, missing_label="0")).code == 0
    before = history(run)
    break_labels(home)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr("tempfile.tempdir", None)
    report = audit(run, "--mechanism", "one-bit", "--mechanism", "laplace", "--mechanism", "rr-on-bins")
    assert (report["population"], report["domain"], report["verdict"]) == ("shop", "0:10:1", "consistent")
    for name in ("one-bit", "laplace", "rr-on-bins"):
        one = row(report, name)
        assert 0.5 < one["lower_bound"] < 1 < one["control"]["lower_bound"] < 2, one
        assert (one["epsilon"], one["control"]["epsilon"], one["labels"]) == ("1", "2", ["0", "10"])
        assert one["largest_provable"] > 2
    assert history(run) == before
    assert list((tmp_path / "scratch").iterdir()) == []


def test_every_mechanism_and_prior_of_classes_and_numbers(run: Run, home: Path) -> None:
    table = pa.table({"example_id": ["a", "b"], "label": ["toys", "garden"]})
    pq.write_table(table, "classes.parquet")
    rules = {"domain": "books,garden,toys", "population": "kinds", "mechanism": "subset-selection"}
    assert run(*arguments(Path("classes.parquet"), **rules)).code == 0
    report = audit(run, population="kinds")
    assert report["verdict"] == "consistent", report
    names = {one["mechanism"] for one in report["mechanisms"]}
    assert {"subset-selection", "rr-with-prior", "estimated prior"} <= names
    assert "order" in report["not_offered"]["one-bit"]
    assert report["not_covered"] == NOT_COVERED
    text = run("audit-privacy", "--population", "kinds", *FEW, "--mechanism", "subset-selection")
    assert text.code == 0
    for words in ("at least", "planted", "never that none is there", "Not covered", "consistent"):
        assert words in " ".join(text.out.split())


def test_units_and_policy_of_a_population_are_its_own(run: Run, labels: Path) -> None:
    table = label_table(30).append_column("user", pa.array([f"u{i // 2}" for i in range(30)]))
    pq.write_table(table, "units.parquet")
    rules = {"unit_column": "user", "max_examples_per_unit": "1", "missing_label": "0", "budget": "3"}
    assert run(*arguments(Path("units.parquet"), **rules)).code == 0
    Path("policy.toml").write_text('[ceilings]\nmechanisms = ["rr-on-bins", "one-bit"]\n')
    assert run("apply", "policy.toml", "--as", "anna").code == 0
    report = audit(run, "--mechanism", "one-bit", "--mechanism", "laplace")
    assert [one["mechanism"] for one in report["mechanisms"]] == ["one-bit"]
    assert list(report["not_offered"]) == ["laplace"]


def test_control_a_randomizer_that_spends_half_as_much_again_is_found(
    run: Run, labels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leak is planted in the service that answers: labels are kept more often than the manifest says."""
    assert run(*arguments(labels)).code == 0
    draw = one_bit.sample_one_bit

    def leaky(index: Any, *of: Any) -> Any:
        honest, rng = draw(index, *of), np.random.default_rng(2)
        return np.where(rng.random(len(index)) < 0.2, (index > 5).astype(honest.dtype), honest)

    monkeypatch.setattr(sampling, "sample_one_bit", leaky)
    report = audit(run, "--mechanism", "one-bit", "--mechanism", "rr-on-bins")
    assert row(report, "one-bit")["verdict"] == report["verdict"] == "exceeds"
    assert row(report, "rr-on-bins")["verdict"] == "consistent"


def test_control_a_prior_without_noise_is_found(run: Run, labels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(*arguments(labels)).code == 0
    monkeypatch.setattr(prior_module, "discrete_laplace", lambda _noise, n: np.zeros(n, np.int64))
    monkeypatch.setattr("labels_party.companions.privacy_audit.MECHANISMS", ())
    report = audit(run)
    assert row(report, "estimated prior")["verdict"] == "exceeds"


def test_too_few_trials_are_said_to_show_nothing(run: Run, labels: Path) -> None:
    assert run(*arguments(labels)).code == 0
    result = run("audit-privacy", "--population", "shop", "--trials", "12", "--mechanism", "rr")
    assert result.code == 1
    assert "inconclusive" in result.out
    assert "too few" in result.out


# --- canaries ------------------------------------------------------------------------------------------------


def with_canaries(run: Run, mechanism: str = "one-bit", count: int = 400) -> str:
    """A release of the labels and so many canaries, whose file lies beside."""
    made = run("audit-privacy", "--population", "shop", "--make-canaries", str(count), "--canaries", "c.csv", "--json")
    assert (made.code, made.json["labels"]) == (0, ["0", "10"]), made.err
    with Path("c.csv").open() as lines:
        rows = [(one["example_id"], float(one["label"])) for one in csv.DictReader(lines)]
    assert abs(sum(label == 0 for _, label in rows) - count / 2) < 3.5 * count**0.5  # seven standard errors
    others = label_table(200, prefix="later")
    table = pa.concat_tables([others, pa.table({"example_id": [i for i, _ in rows], "label": [y for _, y in rows]})])
    pq.write_table(table, "with.parquet")
    return str(
        run(*arguments(Path("with.parquet"), "w.parquet", mechanism=mechanism, budget="5"), "--json").json["release"]
    )


@pytest.mark.parametrize(("mechanism", "count"), [("one-bit", 400), ("rr-on-bins", 2000)])
def test_canaries_bound_the_epsilon_of_a_message(
    mechanism: str, count: int, run: Run, labels: Path, home: Path
) -> None:
    """Of guesses at ε = 1 about 73 in 100 are right by one bit, and 63 by bins, for which a part of ε bought the prior:
    so more of them are asked for the same bound. Wrong once in 20, asked for once in 10⁶."""
    assert run(*arguments(labels, budget="5")).code == 0
    release = with_canaries(run, mechanism, count)
    before = history(run)
    break_labels(home)
    words = ("audit-privacy", "--release", release, "--canaries", "c.csv", "--confidence", "0.999999", "--json")
    report = run(*words)
    assert (report.code, report.json["verdict"]) == (0, "consistent"), report.out
    assert 0.1 < report.json["lower_bound"] < 1 < report.json["largest_provable"]
    assert (report.json["canaries"], report.json["in_message"]) == (count, count)
    assert history(run) == before
    assert "guesses of canaries were right" in run(*words[:-1]).out


def test_control_a_message_that_says_the_labels_is_found_by_its_canaries(
    run: Run, labels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(*arguments(labels, budget="5")).code == 0
    draw = one_bit.sample_one_bit
    monkeypatch.setattr(
        sampling,
        "sample_one_bit",
        lambda index, *of: np.where(np.arange(len(index)) % 2 == 0, (index > 5).astype(np.uint8), draw(index, *of)),
    )
    report = run("audit-privacy", "--release", with_canaries(run), "--canaries", "c.csv", "--json")
    assert (report.code, report.json["verdict"]) == (1, "exceeds")


def test_few_canaries_show_nothing_and_files_of_others_are_refused(run: Run, labels: Path) -> None:
    assert run(*arguments(labels, budget="5")).code == 0
    release = with_canaries(run)
    lines = Path("c.csv").read_text().splitlines()
    Path("few.csv").write_text("\n".join(lines[:4]))
    few = run("audit-privacy", "--release", release, "--canaries", "few.csv", "--json")
    assert (few.code, few.json["verdict"]) == (1, "inconclusive")
    for text in ("", "id,label\na,0", "example_id,label\na,5", "example_id,label\na,0\na,10", "\0"):
        Path("wrong.csv").write_text(text)
        refused(run("audit-privacy", "--release", release, "--canaries", "wrong.csv"), 2, "--make-canaries")
    refused(run("audit-privacy", "--release", "rel_none", "--canaries", "c.csv"), 1, "rel_none")
    refused(run("audit-privacy", "--release", release), 2, "--canaries")
    refused(run("audit-privacy"), 2, "--population")
    refused(run("audit-privacy", "--population", "other"), 1, "no population")
    refused(run("audit-privacy", "--population", "shop", "--mechanism", "dice"), 2, "Unknown mechanism")
    refused(run("audit-privacy", "--population", "shop", "--epsilon", "0"), 2, "--epsilon")
    refused(run("audit-privacy", "--population", "shop", "--make-canaries", "9", "--canaries", "c.csv"), 2, "--force")


@pytest.mark.processes
def test_an_interrupted_audit_leaves_nothing(run: Run, labels: Path, tmp_path: Path) -> None:
    assert run(*arguments(labels)).code == 0
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    words = [str(Path(sys.executable).with_name("labels-party")), "audit-privacy", "--population", "shop"]
    process = subprocess.Popen(words, env=os.environ | {"TMPDIR": str(scratch)}, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 60
    while not list(scratch.glob("*/home/keys")) and time.monotonic() < end:
        time.sleep(0.05)
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said.strip()) == (130, "error: interrupted")
    assert list(scratch.iterdir()) == []
    json.loads(run("budget", "--json").out)
