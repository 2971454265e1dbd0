"""What a newcomer meets: examples that can be sent as they stand, help at 80 columns, errors that say what to do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from features_party.api.schemas import IdListIn
from features_party.api.schemas_models import PredictIn
from features_party.client import AsyncFeaturesPartyClient, FeaturesPartyClient
from features_party.receive.pull_since import first_day
from label_dp.errors import InvalidInput
from label_dp.schemas.training import Training
from labels_party.client import AsyncLabelsPartyClient, LabelsPartyClient
from tests.integration.test_cli_habits import Run
from tests.integration.test_cli_habits import run as run
from tests.support.labels import LabelsParty


@pytest.fixture(scope="module")
def party(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabelsParty]:
    with LabelsParty(tmp_path_factory.mktemp("home"), worker=False) as found:
        yield found


def bodies(document: dict[str, Any]) -> dict[str, Any]:
    """The whole-body example of each call that takes a JSON model."""
    found = {}
    for path, methods in document["paths"].items():
        for method, call in methods.items():
            schema = call.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
            for choice in schema.get("anyOf", [schema]):
                if "$ref" not in choice:
                    continue
                model = document["components"]["schemas"][choice["$ref"].rsplit("/", 1)[1]]
                found[f"{method} {path}"] = model.get("examples", [None])[0]
    return found


def test_the_documented_bodies_are_accepted_as_they_stand(party: LabelsParty) -> None:
    owner = party.client("owner")
    examples = bodies(owner.get("/openapi.json").json())
    assert len(examples) >= 7
    assert not [call for call, example in examples.items() if example is None]
    population = owner.post("/v1/populations", json=examples["post /v1/populations"])
    assert population.status_code == 201, population.text
    at = f"/v1/populations/{population.json()['id']}"
    batch = owner.post(f"{at}/batches", json=examples["post /v1/populations/{population}/batches"])
    assert batch.status_code == 201, batch.text
    changed = owner.patch(f"/v1/batches/{batch.json()['id']}", json=examples["patch /v1/batches/{batch}"])
    assert changed.status_code == 200, changed.text
    asked = owner.post(f"{at}/erasures", json=examples["post /v1/populations/{population}/erasures"])
    assert asked.status_code == 202, asked.text


@pytest.mark.parametrize("model", [IdListIn, Training, PredictIn])
def test_the_features_party_has_examples_that_validate(model: Any) -> None:
    (example,) = model.model_json_schema()["examples"]
    model.model_validate(example)


@pytest.mark.parametrize("party_name", ["labels", "features"])
def test_a_flag_shows_no_type(run: Run, party_name: str) -> None:
    for words in (("--help",), ("audit", "show", "--help"), ("apikey", "list", "--help")):
        answer = run(*words, party=party_name)
        assert answer.code == 0
        assert "--help" in answer.out
        assert "<bool>" not in answer.out
        assert max(len(line) for line in answer.out.splitlines()) <= 80


def test_further_messages_are_shown_in_one_pair_of_brackets(run: Run) -> None:
    assert "[[" not in run("train", "--help", party="features").out


@pytest.mark.parametrize(
    "client", [LabelsPartyClient, AsyncLabelsPartyClient, FeaturesPartyClient, AsyncFeaturesPartyClient]
)
@pytest.mark.parametrize("url", ["localhost:8001", "ftp://localhost", ""])
def test_a_url_that_no_try_could_reach_is_refused_at_once(client: Any, url: str) -> None:
    with pytest.raises(InvalidInput, match="must begin with http"):
        client(url, "key")


def test_a_day_that_is_none_is_not_taken_for_a_release() -> None:
    service: Any = None  # it is not called
    with pytest.raises(InvalidInput, match="a day such as 2026"):
        first_day(service, "yesterday")


@pytest.mark.extended
def test_a_cross_validation_without_true_labels_says_what_it_needs() -> None:
    regressor = pytest.importorskip(
        "features_party.integrations.sklearn", reason="scikit-learn is not installed"
    ).LabelDPRegressor
    with pytest.raises(InvalidInput, match="A score needs true labels: pass y"):
        regressor().score(pa.table({"id": ["a"]}))


def test_counts_read_as_everywhere(run: Run, tmp_path: Path) -> None:
    file = ("--labels", "labels.csv", "--id-column", "click", "--label-column", "revenue")
    rules = ("--domain", "0:10000:1000", "--population", "counted", "--budget", "5", "--missing-label", "0")
    made = run("privatize", *file, *rules, "--epsilon", "1", "--out", str(tmp_path / "m.parquet"))
    assert made.code == 0, made.err
    assert "sealed with 4,000 examples" in " ".join(run("audit", "show").out.split())
    assert run("erase", "--population", "counted", "--id", "c1").out.startswith(
        "1 example: its label no longer counts.\n"
    )
    two = run("erase", "--population", "counted", "--id", "c1", "--id", "c2")
    assert two.out.startswith("2 examples: their labels no longer count.\n")
