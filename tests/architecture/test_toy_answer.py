"""A new kind of answer is two registrations: its signed reader, and the kind that plans and computes it.

Its command, one row of `shared.schemas.answers`, is not part of this test.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field

from labels_party.kinds.answer import AnswerKind, Computed
from labels_party.labels.batches import Batch
from labels_party.ledger.populations import Population
from labels_party.mechanisms.private_prediction.lattice import laplace_noise, noisy
from labels_party.work.kind import Asked, Job
from shared.costs.slices import Cost
from shared.documents.adjacency import REPLACE_ONE
from shared.documents.answer import Answer, AnswerMechanism, Kind, check_charge
from shared.documents.kinds import registry
from shared.documents.kinds.registry import trusted_answer
from shared.documents.members import Strict
from shared.errors import MalformedAnswer
from shared.privacy import ZERO, Epsilon, EpsilonSplit
from shared.schemas.base import Ask, whole
from shared.schemas.numbers import Decimalish
from tests.support.labels import LabelsParty, label_table

COUNT, LABELS = "count", label_table(400)
EXACT = sum(label >= 3 for label in LABELS["label"].to_pylist())


class CountParameters(Strict):
    at_least: int


class CountResult(Strict):
    count: int


def _rule(answer: Answer, _given: CountParameters, said: CountResult) -> None:
    check_charge(answer, Cost(answer.split.randomize.fraction, Fraction(0)), REPLACE_ONE)
    if not 0 <= said.count <= answer.n:
        raise MalformedAnswer("a count lies between 0 and n.")


class Count(Ask):
    """How many labels lie at a position of the domain or above, with Laplace noise."""

    model_config = whole({"epsilon": "0.5", "at_least": 3})

    epsilon: Decimalish = Field(description="ε of this count; the whole batch is charged.")
    at_least: int = Field(ge=0, description="The first position of the domain that counts.")


class CountKind(AnswerKind[Count, Count]):
    """One pass over the sealed labels; replacing one label moves the count by at most 1."""

    name = COUNT
    adjacency = REPLACE_ONE
    path = "counts"
    schema = Count

    def wish(self, _population: Population, body: Count) -> Count:
        return body

    def plan(self, _batch: Batch, _population: Population, wish: Count) -> Asked:
        split = EpsilonSplit(ZERO, ZERO, Epsilon.parse(wish.epsilon, positive=True))
        return self.asked(split, {"at_least": wish.at_least}, additional_release=False)

    def compute(self, job: Job) -> Computed:
        exact = sum(int((index >= job.work.plan["at_least"]).sum()) for _, index in job.labels.chunks())
        epsilon = job.work.split.randomize.fraction
        found = noisy(exact, 1, epsilon, (0, job.n), laplace_noise)
        mechanism = AnswerMechanism(name="count with Laplace noise", source="Dwork et al. 2006", facts={})
        return Computed({"count": found}, mechanism, self.adjacency)


@pytest.fixture
def party(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LabelsParty]:
    """The two registrations, for the length of a test."""
    monkeypatch.setitem(registry.KINDS, COUNT, Kind(COUNT, CountParameters, CountResult, _rule))
    with LabelsParty(tmp_path / "home", worker=False) as party:
        party.services.work.register(CountKind(party.services.key))
        yield party


def test_it_is_asked_for_charged_drawn_listed_and_read(party: LabelsParty) -> None:
    batch = party.sealed_batch(LABELS)
    owner, reader = party.client(), party.client("features")
    asked = owner.post(f"/v1/batches/{batch}/counts", json={"epsilon": "1", "at_least": 3})
    assert asked.status_code == 202, asked.text
    answer = asked.json()["id"]
    assert party.spent(batch) == "1"
    assert party.services.pipeline.run(answer)
    shown = reader.get(f"/v1/answers/{answer}").json()
    assert (shown["kind"], shown["state"], shown["parameters"]) == (COUNT, "published", {"at_least": 3})
    assert [a["kind"] for a in reader.get("/v1/answers").json()] == [COUNT]
    envelope = reader.get(f"/v1/answers/{answer}/document").content
    found, _ = trusted_answer(envelope, party.services.key.public, "features-party")
    assert abs(found.result["count"] - EXACT) <= 40  # P = 2 e^-41 that noise of scale 1 is larger
    events = owner.get("/v1/audit/events").json()
    assert [e["details"]["answer"] for e in events if e["kind"].startswith("answer")] == [COUNT]
    party.services.database.read("verify", party.services.audit.verify)


def test_it_is_documented_and_refused_as_its_schema_says(party: LabelsParty) -> None:
    owner = party.client()
    call = owner.get("/openapi.json").json()["paths"]["/v1/batches/{batch}/counts"]["post"]
    body: dict[str, Any] = call["requestBody"]["content"]["application/json"]["schema"]
    assert body["$ref"].endswith("/Count")
    batch = party.sealed_batch(label_table(40))
    for wrong in ({"epsilon": "1"}, {"epsilon": "1", "at_least": -1}, {"epsilon": "1", "at_least": 0, "more": 1}):
        assert owner.post(f"/v1/batches/{batch}/counts", json=wrong).status_code == 422
    refused = owner.post(f"/v1/batches/{batch}/counts", json={"epsilon": "1000", "at_least": 0})
    assert refused.json()["code"] == "budget-exceeded"
    assert party.spent(batch) == "0"
