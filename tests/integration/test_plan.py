"""A plan: several ε at once, which mechanism to take and why, what is left; public and private facts only."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from labels_party.cli import app
from tests.support.labels import LabelsParty, label_table

pytestmark = pytest.mark.extended

POPULATION = {"name": "shop", "label": "revenue", "domain": "0:50", "lifetime_epsilon": "2"}


@pytest.fixture
def lite(tmp_path: Path) -> Iterator[LabelsParty]:
    with LabelsParty(tmp_path / "home", worker=False) as party:
        yield party


@pytest.fixture
def owner(lite: LabelsParty) -> TestClient:
    client = lite.client()
    assert client.post("/v1/populations", json=POPULATION).status_code == 201
    return client


def plan(client: TestClient, population: str = "shop", **query: Any) -> dict[str, Any]:
    answer = client.get(f"/v1/populations/{population}/plan", params=query)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def by_name(found: dict[str, Any], epsilon: str) -> dict[str, dict[str, Any]]:
    rows = [m for m in found["mechanisms"] if m["epsilon"]["total"] == epsilon and not m["options"]]
    return {m["mechanism"]: m for m in rows}


def test_several_epsilons_in_one_answer(owner: TestClient) -> None:
    found = plan(owner, epsilon=["0.5", "1", "2.5"], n=10_000)
    assert [r["epsilon"] for r in found["recommendations"]] == ["0.5", "1", "2.5"]
    assert [r["epsilon_left"] for r in found["recommendations"]] == ["1.5", "1", None]
    assert "budget does not allow" in found["recommendations"][2]["why"]
    single = plan(owner, epsilon="1", n=10_000)
    assert list(by_name(single, "1").values()) == list(by_name(found, "1").values())
    for recommendation in found["recommendations"]:
        rows = [m for m in found["mechanisms"] if m["epsilon"]["total"] == recommendation["epsilon"]]
        assert {"rr-on-bins", "one-bit", "unbiased", "laplace"} <= {m["mechanism"] for m in rows}
        taken = [[m[key] == recommendation[key] for key in ("mechanism", "options")] for m in rows].index([True, True])
        assert rows[taken]["epsilon"] == recommendation["epsilon_split"]
        # of mechanisms as good as each other, auto may take one whose prior costs it a little
        best = min(row["expected_model_error"] for row in rows)
        assert rows[taken]["expected_model_error"] <= 1.05 * best


def test_a_plan_says_what_charges_more_than_its_channel_proves(owner: TestClient) -> None:
    found = plan(owner, epsilon=["0.5", "2"], n=10_000)
    proved = {name: row["epsilon_of_channel"] for name, row in by_name(found, "2").items()}
    assert float(proved["exponential"]) == pytest.approx(1, abs=1e-6)
    assert float(proved["rr"]) == pytest.approx(2, abs=1e-6)
    assert [text.partition(" at ")[0] for text in found["unused"]] == ["exponential", "exponential"]
    assert found["unused"][1].startswith("exponential at ε 2 charges 2 for every label, and its channel proves 1")


def test_the_model_error_falls_with_rows_and_epsilon_and_counts_bias(owner: TestClient) -> None:
    few, many = plan(owner, epsilon=["0.5", "2"], n=1_000), plan(owner, epsilon=["0.5", "2"], n=1_000_000)
    for name, row in by_name(few, "0.5").items():
        assert by_name(many, "0.5")[name]["expected_model_error"] < row["expected_model_error"]
        assert by_name(few, "2")[name]["expected_model_error"] < row["expected_model_error"]
    one_bit, bins = by_name(many, "0.5")["one-bit"], by_name(many, "0.5")["rr-on-bins"]
    assert one_bit["expected_bias_squared"] == pytest.approx(0, abs=1e-9)
    # with many rows noise averages out and bias stays: the smaller label error is the worse model
    assert bins["expected_label_loss"] < one_bit["expected_label_loss"]
    assert bins["expected_model_error"] > one_bit["expected_model_error"]
    advice = many["recommendations"][0]
    assert advice["mechanism"] != "rr-on-bins"
    assert "no number of rows averages away" in advice["why"]
    assert "not expected to do better than a constant" in plan(owner, epsilon="0.01", n=50)["recommendations"][0]["why"]


def test_the_rule_in_figures(owner: TestClient) -> None:
    """One bit has no bias, so its error is noise variance · P/n with P = 1.5√(n·s)."""
    row = by_name(plan(owner, epsilon="1", n=10_000), "1")["one-bit"]
    prior_variance = (51**2 - 1) / 12
    share = prior_variance / (prior_variance + row["noise_variance"])
    assert row["effective_rows"] == pytest.approx(10_000 * share)
    assert row["effective_parameters"] == pytest.approx(1.5 * (10_000 * share) ** 0.5)
    assert row["expected_model_error"] == pytest.approx(row["noise_variance"] * row["effective_parameters"] / 10_000)


def test_what_a_batch_spent_is_taken_off(lite: LabelsParty, owner: TestClient) -> None:
    batch = lite.sealed_batch(label_table(60), domain="0:50", lifetime="2")
    lite.release(batch, "0.5")
    found = plan(owner, epsilon=["1", "1.6"], batch=batch)
    assert found["n"] == 60
    assert [r["epsilon_left"] for r in found["recommendations"]] == ["0.5", None]


def test_a_carried_prior_is_judged_under_and_costs_nothing_if_so_asked(lite: LabelsParty, owner: TestClient) -> None:
    assert plan(owner, epsilon="1", n=100, prior="latest")["prior"].startswith("uniform")
    release = lite.release(lite.sealed_batch(label_table(400), domain="0:50", lifetime="2"), "1")
    estimated, carried = plan(owner, epsilon="1", n=100), plan(owner, epsilon="1", n=100, prior="latest")
    assert estimated["prior"] == carried["prior"] == f"carried over from release {release}"
    assert by_name(estimated, "1")["rr-on-bins"]["epsilon"]["prior"] != "0"
    assert by_name(carried, "1")["rr-on-bins"]["epsilon"]["prior"] == "0"
    assert by_name(carried, "1")["one-bit"] == by_name(estimated, "1")["one-bit"]


def test_a_plan_reads_no_label(lite: LabelsParty, owner: TestClient) -> None:
    """Two batches that differ in every label give the same plan, byte for byte."""
    answers = []
    for k, prefix in ((2, "a"), (50, "b")):
        batch = lite.sealed_batch(label_table(60, k=k, prefix=prefix), domain="0:50", lifetime="2")
        answers.append(owner.get("/v1/populations/shop/plan", params={"epsilon": "1", "batch": batch}).content)
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    "query",
    [
        {"n": 10},
        {"epsilon": [], "n": 10},
        {"epsilon": ["1"] * 17, "n": 10},
        {"epsilon": "0", "n": 10},
        {"epsilon": ["1", "x"], "n": 10},
        {"epsilon": "1"},
        {"epsilon": "1", "n": 10, "prior": "magic"},
        {"epsilon": "1", "n": 10, "loss": "magic"},
    ],
)
def test_a_wrong_question_is_refused(query: dict[str, Any], owner: TestClient) -> None:
    assert owner.get("/v1/populations/shop/plan", params=query).status_code == 422


def test_on_the_command_line(
    lite: LabelsParty, owner: TestClient, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LABELS_PARTY_HOME", str(lite.home))
    words = ["plan", "--population", "shop", "--epsilon", "0.5", "--epsilon", "1", "--n", "5000"]
    app(words, standalone_mode=False)
    shown = capsys.readouterr().out
    assert "expected model error" in shown
    assert "ε = 0.5: " in shown
    assert "would be left" in shown
    app(["plan", "--domain", "0:10", *words[3:]], standalone_mode=False)
    assert "would be left" not in capsys.readouterr().out  # nobody gave a lifetime
    app([*words, "--json"], standalone_mode=False)
    assert json.loads(capsys.readouterr().out) == plan(owner, epsilon=["0.5", "1"], n=5000)


@pytest.fixture
def conversions(lite: LabelsParty) -> TestClient:
    client = lite.client()
    body = {"name": "conversions", "label": "converted", "domain": "binary", "lifetime_epsilon": "2"}
    made = client.post("/v1/populations", json=body)
    assert (made.status_code, made.json()["domain"]) == (201, {"range": "0:1:1"})
    return client


def test_two_values_are_planned_without_a_prior_and_say_what_is_learnt(conversions: TestClient) -> None:
    found = plan(conversions, "conversions", epsilon=["0.5", "2"], n=10_000_000, assume_rate="0.001")
    for advice in found["recommendations"]:
        assert advice["mechanism"] == "rr"
        assert advice["epsilon_split"]["prior"] == "0"
        assert advice["epsilon_split"]["randomize"] == advice["epsilon"]
    rows = by_name(found, "0.5")
    assert rows["rr"]["epsilon"] == found["recommendations"][0]["epsilon_split"]
    assert {"rr-on-bins", "one-bit", "unbiased", "balanced", "laplace"} <= set(rows)  # none is hidden
    assert rows["rr"]["expected_model_error"] <= min(
        row["expected_model_error"] * (1 + 1e-9) for row in rows.values() if row["outputs"] > 1
    )
    two = found["two_values"]
    assert two["rates"] == "assumed by the owner"
    low, high = two["worth"]
    assert (low["epsilon"], low["value"], [r["rate"] for r in low["rates"]]) == ("0.5", "1", ["0.001"])
    assert low["rates"][0]["too_few"]
    assert "0.1 %" in low["warnings"][0]
    assert not high["rates"][0]["too_few"]
    assert high["warnings"] == []


def test_without_an_assumption_only_suitable_domains_have_examples(conversions: TestClient, owner: TestClient) -> None:
    found = plan(conversions, "conversions", epsilon="1", n=1000, loss="log")
    assert found["loss"] == "log"
    assert found["two_values"]["rates"].startswith("examples; nothing is known")
    assert [r["rate"] for r in found["two_values"]["worth"][0]["rates"]] == ["0.001", "0.01", "0.1", "0.5"]
    assert plan(owner, epsilon="1", n=1000)["two_values"] is None
    for population, query, said in (
        ("shop", {"assume_rate": "0.1"}, "share of one of two values"),
        ("conversions", {"assume_rate": "2"}, "between 0 and 1"),
        ("shop", {"loss": "log"}, "within 0 to 1"),
    ):
        refused = owner.get(f"/v1/populations/{population}/plan", params={"epsilon": "1", "n": 10} | query)
        assert refused.status_code == 422
        assert said in refused.json()["detail"]


def test_a_prior_that_is_asked_for_of_two_values_is_in_the_plan(lite: LabelsParty, conversions: TestClient) -> None:
    ask = {"epsilon": "1", "n": 50_000}
    bought = plan(conversions, "conversions", **ask, prior="estimate")
    split = bought["recommendations"][0]["epsilon_split"]
    assert split["prior"] != "0"
    assert bought["two_values"]["worth"][0]["prior_epsilon"] == split["prior"]
    assert plan(conversions, "conversions", **ask)["recommendations"][0]["epsilon_split"]["prior"] == "0"
    # as long as there is no release, "latest" is an estimated one in a release, and so it is here
    assert plan(conversions, "conversions", **ask, prior="latest")["recommendations"][0]["epsilon_split"] == split


def test_two_values_on_the_command_line(
    lite: LabelsParty, conversions: TestClient, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LABELS_PARTY_HOME", str(lite.home))
    words = ["plan", "--population", "conversions", "--epsilon", "0.5", "--n", "10000000", "--assume-rate", "0.001"]
    app(words, standalone_mode=False)
    shown = " ".join(capsys.readouterr().out.split())
    for part in ("flip probability", "0.3775", "2,549.32", "of the rarer value", "A model needs about 30", "0.1 %"):
        assert part in shown
    assert "--prior-epsilon 0.005" in shown
    app([*words, "--json"], standalone_mode=False)
    told = json.loads(capsys.readouterr().out)
    assert told == plan(conversions, "conversions", epsilon="0.5", n=10_000_000, assume_rate="0.001")
