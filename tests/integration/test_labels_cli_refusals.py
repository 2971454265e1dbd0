"""What `labels-party privatize` refuses: one line, an exit code, nothing charged, nothing frozen."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.labels_cli import Run, arguments, budgets, read, refused


def test_over_budget_is_a_refusal_and_costs_nothing(run: Run, labels: Path, home: Path) -> None:
    refused(run(*arguments(labels, epsilon="2.000000001")), 1, "at most 2 is left")
    assert not (home.parent / "m.parquet").exists()
    assert budgets(run, home) == []  # nothing was declared or sealed on the way to the refusal
    assert run(*arguments(labels, epsilon="2")).code == 0


def test_a_second_release_needs_to_be_asked_for_and_is_charged_on_top(run: Run, labels: Path, home: Path) -> None:
    assert run(*arguments(labels)).code == 0
    again = run(*arguments(labels, "again.parquet"))
    refused(again, 1, "--additional-release", "labels-party message rel_")
    more = run(*arguments(labels, "more.parquet"), "--additional-release", "--json")
    assert more.json["epsilon_spent"] == "2"
    assert read(home.parent / "more.parquet", home).num_rows == 60
    refused(run(*arguments(labels, "most.parquet"), "--additional-release"), 1, "at most 0 is left")


def test_the_same_examples_under_another_name_say_what_to_do(run: Run, labels: Path) -> None:
    assert run(*arguments(labels)).code == 0
    refused(run(*arguments(labels, "x.parquet", population="other")), 1, "population 'shop'", "--additional-release")


def test_missing_labels_without_a_value_are_a_refusal(run: Run, labels: Path, home: Path) -> None:
    examples = home.parent / "examples.csv"
    examples.write_text("example_id\n" + "\n".join(f"click-{i:06d}" for i in range(61)) + "\n")
    refused(run(*arguments(labels, examples=str(examples))), 1, "no label")
    assert [b for r in run("budget", "--json").json for b in r["batches"]] == []


def test_a_population_keeps_its_rules(run: Run, labels: Path) -> None:
    assert run(*arguments(labels)).code == 0
    for change in ({"domain": "0:11"}, {"budget": "3"}, {"audience": "x"}, {"out_of_domain": "refuse"}):
        refused(run(*arguments(labels, "x.parquet", **change)), 1, "other rules")


@pytest.mark.parametrize("existing", ["m.parquet", "m.parquet.dsse.json"])
def test_an_existing_file_is_never_overwritten(existing: str, run: Run, labels: Path, home: Path) -> None:
    (home.parent / existing).write_text("mine")
    refused(run(*arguments(labels)), 2, "exists already")
    assert (home.parent / existing).read_text() == "mine"
    assert budgets(run, home) == []


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"labels": "absent.csv"}, "absent.csv"),
        ({"id_column": "nope"}, "no column 'nope'"),
        ({"label_column": "nope"}, "no column 'nope'"),
        ({"domain": "10:0"}, "domain"),
        ({"domain": "nonsense"}, "neither a domain"),
        ({"epsilon": "0"}, "greater than zero"),
        ({"epsilon": "-1"}, "negative"),
        ({"epsilon": "nan"}, "decimal number"),
        ({"epsilon": "1e-999999999"}, "decimal number"),
        ({"epsilon": "1e-999"}, "decimals"),
        ({"budget": "0"}, "greater than zero"),
        ({"budget": "0.1234567891"}, "9 decimals"),
        ({"mechanism": "magic"}, "rr-on-bins"),
        ({"loss": "hinge"}, "squared"),
        ({"prior": "guess"}, "prior"),
        ({"prior_epsilon": "1"}, "smaller than the total"),
        ({"prior_method": "wish"}, "project"),
        ({"clip": "0:5"}, "option"),
        ({"mechanism": "one-bit", "clip": "5"}, "A:B"),
        ({"missing_label": "10.5"}, "domain"),
        ({"out_of_domain": "shrug"}, "clip"),
        ({"audience": ""}, "audience"),
        ({"out": "absent/m.parquet"}, "does not exist"),
        ({"examples": "absent.csv"}, "absent.csv"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_two(
    change: dict[str, str], word: str, run: Run, labels: Path, home: Path
) -> None:
    refused(run(*arguments(labels, **change)), 2, word)
    assert not list(home.parent.glob("*.dsse.json"))
    assert budgets(run, home) == []  # a batch that was sealed in vain could never be used again


@pytest.mark.parametrize("wrong", ["outside", "text", "missing"])
def test_bad_rows_do_not_freeze_the_rules_of_a_population(wrong: str, run: Run, home: Path) -> None:
    path, listed = home.parent / "wrong.csv", home.parent / "ids.csv"
    path.write_text("example_id,label\na,1\nb," + {"outside": "77", "text": "x", "missing": "2"}[wrong] + "\n")
    listed.write_text("example_id\na\nb\nc\n")
    options = {"out_of_domain": "refuse"} | ({"examples": str(listed)} if wrong == "missing" else {})
    assert run(*arguments(path, **options)).code in (1, 2)
    assert budgets(run, home) == []
    path.write_text("example_id,label\n" + "".join(f"{i},{i % 10}\n" for i in range(50)))
    assert run(*arguments(path)).code == 0


@pytest.mark.parametrize(
    "wrong", [["nonsense"], ["privatize", "--nonsense"], ["plan"], ["apikey", "revoke"], ["message"]]
)
def test_wrong_usage_is_exit_code_two(wrong: list[str], run: Run) -> None:
    result = run(*wrong)
    assert result.code == 2
    assert "Traceback" not in result.err + result.out
