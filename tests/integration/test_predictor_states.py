"""What a predictor learned stays where the labels are, shows nothing but its draws, and goes with them."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from label_dp.errors import (
    Conflict,
    LabelDPError,
    Unavailable,
)
from tests.support.asking import predictor as parse_predictor
from tests.support.labels import FakeClock, LabelsParty
from tests.support.predicting import (
    FEATURES,
    METHODS,
    ask,
    described,
    fresh_name,
    learned,
    made,
    payload,
    tables,
    with_features,
)

pytestmark = pytest.mark.extended


def test_what_was_learned_goes_with_the_labels(ready: tuple[LabelsParty, str]) -> None:
    party, batch = ready
    predictor = made(party, batch)
    first = ask(party, predictor)
    assert len(learned(party, batch)) == 1
    party.services.retention.purge(batch, "test")
    assert learned(party, batch) == []
    assert list((party.services.home.labels / batch).glob("features-*")) == []
    assert described(party, predictor)["state"] == "retired"
    assert ask(party, predictor).envelope == first.envelope
    with pytest.raises(Conflict):
        ask(party, predictor, {"x": 1})
    with pytest.raises(Conflict, match="purged"):
        party.services.companions.features.put(batch, tables()[1])


def test_an_erased_label_is_forgotten_by_what_learned_it(lite: LabelsParty) -> None:
    owner = lite.client()
    rules = {"name": "shop", "label": "revenue", "domain": "0:10", "lifetime_epsilon": "5", "missing_label": 0}
    owner.post("/v1/populations", json=rules)
    batch = with_features(lite, *tables())
    predictor = made(lite, batch)
    ask(lite, predictor)
    lite.services.erasures.request("shop", ["c-00003"], "test")
    lite.services.worker.drain()
    assert described(lite, predictor)["state"] == "retired"
    assert learned(lite, batch) == []
    told = owner.get("/v1/populations/shop/erasures").json()
    assert "ans_" in str(told)  # the answer cannot be recalled, and its audience is named
    again = made(lite, batch)
    assert ask(lite, again).answer


def test_training_on_labels_that_are_purged_meanwhile_counts_for_nothing(tmp_path: Path) -> None:
    party: LabelsParty

    def fault(name: str) -> None:
        if name == "predictor.trained":
            party.services.retention.purge(batch, "test")

    with LabelsParty(tmp_path / "home", worker=False, faults=fault) as party:
        batch = with_features(party, *tables(60))
        asked = parse_predictor(method="average", epsilon="0.5", epsilon_cap="1", features=FEATURES)
        _, answer = party.services.companions.predictors.create(batch, asked, "test")
        assert party.services.companions.predictors.train(answer["id"]) is False
        assert learned(party, batch) == []
        assert described(party, answer["id"])["state"] == "retired"


def test_what_was_learned_is_encrypted_and_noticed_if_it_is_damaged(ready: tuple[LabelsParty, str]) -> None:
    party, batch = ready
    predictor = made(party, batch)
    (path,) = learned(party, batch)
    data = path.read_bytes()
    assert b"weights" not in data
    assert b"NUMPY" not in data
    path.write_bytes(data[:40] + bytes([data[40] ^ 1]) + data[41:])
    with pytest.raises(Unavailable):
        ask(party, predictor)
    assert party.spent(batch) == "0"


@pytest.mark.parametrize("method", METHODS)
def test_its_size_does_not_depend_on_labels(party: LabelsParty, method: str) -> None:
    labels, features = tables()
    sizes = set()
    for column in (labels["label"], *(pa.array([value] * len(labels)) for value in (0.0, 5.0, 10.0))):
        name = fresh_name()
        batch = with_features(party, labels.set_column(1, "label", column), features, population=name, label=name)
        made(party, batch, method)
        (path,) = learned(party, batch)
        sizes.add(path.stat().st_size)
    assert len(sizes) == 1


def test_one_label_changes_nothing_that_can_be_seen_but_the_draw(tmp_path: Path, clock: FakeClock) -> None:
    """Two labels parties whose batches differ in one label: the same descriptions, refusals, rows and sizes."""
    seen = []
    for name, label in (("one", 0.0), ("two", 10.0)):
        labels, features = tables(60)
        values = labels["label"].to_pylist()
        values[7] = label
        with LabelsParty(tmp_path / name, clock=clock, worker=False) as party:
            batch = with_features(party, labels.set_column(1, "label", pa.array(values)), features)
            told: list[Any] = []
            for method in METHODS:
                predictor = made(party, batch, method, cap="1")
                names = {predictor: "PREDICTOR", batch: "BATCH"}
                for x, audience in itertools.product((1, 2, 3, "bad"), (None, "features-party", "other")):
                    try:
                        answer = payload(ask(party, predictor, {"x": x}, audience).envelope)
                        told.append([*sorted(answer), answer["epsilon_spent"], str(answer["mechanism"])])
                    except LabelDPError as error:
                        told.append((error.code, error.detail))
                shown = described(party, predictor)
                told.append({k: v for k, v in shown.items() if k not in ("id", "batch", "population")})
                text = str(told)
                for real, instead in names.items():
                    text = text.replace(real, instead)
                told = [text]
            sizes = sorted(p.stat().st_size for p in party.services.home.labels.rglob("*") if p.is_file())
            seen.append((told, sizes))
    assert seen[0] == seen[1]


def test_another_audience_learns_of_nothing(ready: tuple[LabelsParty, str]) -> None:
    party, batch = ready
    predictor = made(party, batch)
    ask(party, predictor)
    other = party.client("features", "other")
    for method, path in (("get", ""), ("post", "/predict")):
        real, none = (getattr(other, method)(f"/v1/predictors/{p}{path}") for p in (predictor, "prd_" + "0" * 24))
        assert real.status_code == none.status_code
        assert real.text.replace(predictor, "") == none.text.replace("prd_" + "0" * 24, "")
    assert other.get("/v1/predictors").json() == []
