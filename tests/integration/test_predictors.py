"""Predictors as a service: queries are charged once, refused for nothing, answered the same for ever."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from label_dp.documents.canonical import canonical_bytes
from label_dp.documents.registry import trusted_answer
from label_dp.errors import (
    AlreadyReleased,
    BudgetExceeded,
    Conflict,
    InvalidEpsilon,
    InvalidInput,
    InvalidMechanism,
    InvalidRows,
    InvalidTable,
    LabelDPError,
    NotFound,
    SecondPersonNeeded,
    SignatureInvalid,
)
from tests.support.labels import LabelsParty, label_table
from tests.support.labels_api import is_problem
from tests.support.predicting import (
    FEATURES,
    METHODS,
    ask,
    described,
    events,
    fresh_name,
    learned,
    made,
    of_batch,
    payload,
    tables,
    with_features,
)

pytestmark = pytest.mark.extended


@pytest.fixture(scope="module")
def party(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabelsParty]:
    """One home for the tests that each have a population of their own in it."""
    with LabelsParty(tmp_path_factory.mktemp("predictors") / "home", worker=False) as found:
        yield found


# --- answers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_every_method_answers_and_is_charged_for_it(ready: tuple[LabelsParty, str], method: str) -> None:
    party, batch = ready
    predictor = made(party, batch, method)
    query = {"x": 8} if method == "walk" else {"x": 8, "sector": "c"}
    found = ask(party, predictor, query)
    answer, digest = trusted_answer(found.envelope, party.services.key.public, "features-party")
    assert answer.kind == "prediction"
    assert answer.parameters["predictor"] == predictor
    assert str(answer.epsilon.total) == str(answer.epsilon_spent) == party.spent(batch) == "0.5"
    value = float(answer.result["value"])
    assert value in (0.0, 1.0) if method in ("soft-majority", "walk") else 0 <= value <= 10
    assert found.left == described(party, predictor)["queries_left"] == 3
    (charge,), (published,) = events(party, "release-charged", batch), events(party, "answer-published", batch)
    assert charge.subject.work == published.subject.work == answer.id
    assert charge.details["predictor"] == predictor
    assert published.details["sha256"] == digest
    forged = json.loads(found.envelope)
    forged["payload"] = base64.b64encode(base64.b64decode(forged["payload"]).replace(b"predict", b"predicT")).decode()
    with pytest.raises(SignatureInvalid):
        trusted_answer(canonical_bytes(forged), party.services.key.public, None)


def test_models_learn_something(ready: tuple[LabelsParty, str]) -> None:
    """With so much ε that noise is nothing, predictions at both ends differ as labels do."""
    party, _ = ready
    batch = with_features(party, *tables(400, 3), population="large", label="large", lifetime="900000")
    for method in METHODS:
        predictor = made(party, batch, method, "10000", "100000", **({"parts": 4} if method in ("average",) else {}))
        sector = {} if method == "walk" else {"sector": "b"}
        low, high = (
            float(payload(ask(party, predictor, {"x": x} | sector).envelope)["result"]["value"]) for x in (1, 9)
        )
        assert high > low, method


def test_one_query_has_one_answer_for_ever_and_is_charged_once(ready: tuple[LabelsParty, str]) -> None:
    party, batch = ready
    predictor = made(party, batch, cap="0.5")
    first = ask(party, predictor, {"x": 0, "sector": "b"})
    same: list[dict[str, Any]] = [
        {"x": 0.0, "sector": "b"},
        {"x": -0.0, "sector": "b"},
        {"x": "0", "sector": "b"},
        {"x": " -0.0e3", "sector": "b"},
        {"x": -5, "sector": "b"},  # clipped to the public range
        {"sector": "b", "x": 1e-9},
    ]
    for query in same:
        assert ask(party, predictor, query).envelope == first.envelope
    assert party.spent(batch) == "0.5"
    for query in ({"x": 0, "sector": "a"}, {"x": 0}, {"x": 0.01, "sector": "b"}):
        with pytest.raises(BudgetExceeded):
            ask(party, predictor, query)
    assert len(events(party, "release-charged", batch)) == 1


def test_what_is_missing_is_one_query(ready: tuple[LabelsParty, str]) -> None:
    party, batch = ready
    predictor = made(party, batch, cap="0.5")
    first = ask(party, predictor, {})
    for query in ({"x": None}, {"x": float("nan")}, {"x": "NaN", "sector": None}, {"sector": "unheard of"}):
        assert ask(party, predictor, query).envelope == first.envelope
    assert payload(first.envelope)["parameters"]["query"] == {"x": None, "sector": None}


def test_another_predictor_shares_no_answer(ready: tuple[LabelsParty, str]) -> None:
    party, batch = ready
    one, two = made(party, batch), made(party, batch)
    answers = {ask(party, p).answer for p in (one, two, one, two)}
    assert len(answers) == 2
    assert party.spent(batch) == "1"


def test_an_answer_outlives_its_predictor(ready: tuple[LabelsParty, str]) -> None:
    party, batch = ready
    predictor = made(party, batch)
    first = ask(party, predictor)
    party.services.companions.predictors.retire(predictor, "test")
    assert learned(party, batch) == []
    assert ask(party, predictor).envelope == first.envelope
    with pytest.raises(Conflict, match="retired"):
        ask(party, predictor, {"x": 1})
    assert party.spent(batch) == "0.5"
    assert len(events(party, "predictor-retired", batch)) == 1


# --- budgets -------------------------------------------------------------------------------------------------


def test_the_cap_and_the_lifetime_end_it_whichever_comes_first(lite: LabelsParty) -> None:
    batch = with_features(lite, *tables(), lifetime="1.2")
    predictor = made(lite, batch, cap="10")
    assert described(lite, predictor)["queries_left"] == 2
    for x in (1, 2):
        ask(lite, predictor, {"x": x})
    before = events(lite, "release-charged", batch)
    with pytest.raises(BudgetExceeded, match=r"1\.2"):
        ask(lite, predictor, {"x": 3})
    assert (lite.spent(batch), events(lite, "release-charged", batch)) == ("1", before)
    assert described(lite, predictor)["queries_left"] == 0


def test_releases_and_predictors_compose_and_are_asked_for_as_such(ready: tuple[LabelsParty, str]) -> None:
    party, batch = ready
    predictor = made(party, batch)  # nothing was asked yet: it stands all the same
    with pytest.raises(AlreadyReleased, match="predictor"):
        party.charge(batch)
    with pytest.raises(AlreadyReleased, match="predictor"):
        made(party, batch, additional_release=False)
    ask(party, predictor)
    party.release(batch, additional_release=True)
    assert party.spent(batch) == "1.5"
    assert described(party, predictor)["queries_left"] == 3


def test_four_eyes_and_states_are_respected(lite: LabelsParty) -> None:
    party = lite
    owner = party.client()
    rules = {"name": "eyes", "label": "e", "domain": "0:10", "lifetime_epsilon": "5", "four_eyes": True}
    owner.post("/v1/populations", json=rules)
    batch = owner.post("/v1/populations/eyes/batches", json={"presence": "public"}).json()["id"]
    with pytest.raises(Conflict, match="open"):
        made(party, batch)
    labels, features = tables()
    party.services.intake.add_labels(batch, labels, owner=True)
    party.services.sealer.seal(batch, "test")
    with pytest.raises(SecondPersonNeeded):
        made(party, batch)
    other = party.sealed_batch(label_table(10, prefix="z"))
    with pytest.raises(Conflict, match="no features"):
        made(party, other)
    party.services.companions.features.put(other, features)
    with pytest.raises(InvalidInput, match="No example"):
        made(party, other)
    with pytest.raises(NotFound):
        made(party, "bat_none")


BAD: list[tuple[dict[str, Any], type[LabelDPError], str]] = [
    ({"epsilon": "0"}, InvalidEpsilon, "greater"),
    ({"epsilon": "3", "cap": "2"}, InvalidInput, "at least one"),
    ({"epsilon": "11", "cap": "11"}, BudgetExceeded, "11"),
    ({"method": "soft-majority", "threshold": None}, InvalidInput, "threshold"),
    ({"method": "soft-majority", "threshold": 0}, InvalidInput, "threshold"),
    ({"method": "soft-majority", "threshold": 11}, InvalidInput, "threshold"),
    ({"method": "soft-majority", "threshold": "nan"}, InvalidInput, "decimal"),
    ({"method": "soft-majority", "epsilon": "0.0000001"}, InvalidEpsilon, "too small"),
    ({"parts": 121}, InvalidMechanism, "120"),
    ({"threshold": 5}, InvalidInput, "no use"),
    ({"method": "stable-ridge", "regularisation": 0}, InvalidMechanism, "regularisation"),
    ({"method": "stable-ridge", "regularisation": "1e-7"}, InvalidMechanism, "regularisation"),
    ({"method": "stable-logistic", "regularisation": "0.000001"}, InvalidMechanism, "regularisation"),
    ({"method": "walk", "threshold": 5, "features": FEATURES}, InvalidMechanism, "one feature"),
    ({"features": [FEATURES[0], FEATURES[0]]}, InvalidInput, "name of its own"),
    ({"features": [{"name": "x", "range": [10, 0]}]}, InvalidInput, "below"),
    ({"features": [{"name": "x", "range": [0, "inf"]}]}, InvalidInput, "decimal"),
    ({"features": [{"name": "none", "range": [0, 1]}]}, InvalidTable, "no column"),
    ({"features": [{"name": "example_id", "values": ["c-00001"]}]}, InvalidTable, "no column"),
    ({"features": [{"name": "sector", "range": [0, 1]}]}, InvalidRows, "number"),
]


@pytest.mark.parametrize(("change", "error", "says"), BAD, ids=[str(i) for i in range(len(BAD))])
def test_a_bad_predictor_is_refused_for_nothing(
    ready: tuple[LabelsParty, str], change: dict[str, Any], error: type[LabelDPError], says: str
) -> None:
    party, batch = ready
    wanted = {"method": "average"} | change
    with pytest.raises(error, match=says):
        made(party, batch, **wanted)
    assert of_batch(party, batch) == []
    assert party.spent(batch) == "0"


MALFORMED: list[tuple[dict[str, Any], str, str]] = [
    ({"method": "oracle"}, "body.method", "stable-logistic"),
    ({"learner": "oracle"}, "body.learner", "logistic"),
    ({"features": []}, "body.features", "must not be empty"),
    ({"features": [{"name": "x", "values": []}]}, "body.features.0.values", "must not be empty"),
]


@pytest.mark.parametrize(("change", "where", "says"), MALFORMED, ids=[str(i) for i in range(len(MALFORMED))])
def test_a_predictor_that_the_schema_refuses_is_refused_for_nothing(
    ready: tuple[LabelsParty, str], change: dict[str, Any], where: str, says: str
) -> None:
    party, batch = ready
    body = {"batch": batch, "method": "average", "epsilon": "0.5", "epsilon_cap": "2", "features": FEATURES}
    refused = party.client().post("/v1/predictors", json=body | {"additional_release": True} | change)
    is_problem(refused, 422, "invalid-request")
    (place,) = refused.json()["places"]
    assert place["where"] == where
    assert says in place["rule"]
    assert of_batch(party, batch) == []
    assert party.spent(batch) == "0"


BAD_QUERIES: list[dict[str, Any]] = [
    {"y": 1},
    {"x": "one"},
    {"x": True},
    {"x": float("inf")},
    {"x": "1_0"},
    {"x": 10**400},
    {"x": [1]},
    {"sector": ["b"]},
    {"sector": "b" * 201},
]


@pytest.mark.parametrize("query", BAD_QUERIES, ids=[str(i) for i in range(len(BAD_QUERIES))])
def test_a_bad_query_is_refused_for_nothing(ready: tuple[LabelsParty, str], query: dict[str, Any]) -> None:
    party, batch = ready
    predictor = made(party, batch)
    with pytest.raises(InvalidInput):
        ask(party, predictor, query)
    assert party.spent(batch) == "0"


def test_a_walk_needs_its_position(ready: tuple[LabelsParty, str]) -> None:
    party, batch = ready
    predictor = made(party, batch, "walk")
    with pytest.raises(InvalidInput, match="missing"):
        ask(party, predictor, {"x": None})
    assert party.spent(batch) == "0"


def test_odd_tables_of_features_are_refused_or_read(ready: tuple[LabelsParty, str], tmp_path: Path) -> None:
    party, batch = ready
    store = party.services.companions.features
    ids = ["c-00000", "c-00001"]
    for bad in (
        {"example_id": ["a", "a"], "x": [1, 2]},
        {"example_id": ["a", None], "x": [1, 2]},
        {"other": ids, "x": [1, 2]},
        {"example_id": ids},
        {"example_id": ids, "x": [[1], [2]]},
        {"example_id": pa.array([], pa.string()), "x": pa.array([], pa.int64())},
    ):
        with pytest.raises(InvalidInput):
            store.put(batch, pa.table(bad))
    infinite = {"example_id": ids, "x": [1.0, np.inf], "sector": ["a", "b"]}
    store.put(batch, pa.table(infinite))
    with pytest.raises(InvalidRows, match="finite"):
        made(party, batch)
    csv = tmp_path / "f.csv"
    csv.write_text("example_id,x,sector\nc-00000,,a\nc-00001,3,b\nc-00002,4.5,\nstranger,1,c\n")
    store.put(batch, store.read_file(csv))
    predictor = made(party, batch, parts=2)
    assert described(party, predictor)["examples"] == 3
    folder = party.services.home.labels / batch
    assert len(list(folder.glob("features-*"))) == 3
    party.services.erasures.finish()  # what was replaced is deleted
    assert len(list(folder.glob("features-*"))) == 1


@pytest.mark.parametrize("labels", [[5.0], [3.0] * 4], ids=["one", "all equal"])
def test_degenerate_batches_are_answered(party: LabelsParty, labels: list[float]) -> None:
    ids = [f"d-{i}" for i in range(len(labels))]
    table = pa.table({"example_id": ids, "label": labels})
    features = pa.table({"example_id": ids, "x": [1.0] * len(ids), "sector": ["a"] * len(ids)})
    name = fresh_name()
    batch = with_features(party, table, features, population=name, label=name)
    for method in METHODS:
        assert ask(party, made(party, batch, method), {"x": 1.0}).answer
