"""A new kind of answer is two files, and its proof in the standalone verifier.

`shared/label_dp/companions/kinds/KIND.py`: what is asked for, its parameters, its result and its strict reader.
`labels_party/companions/kinds/KIND.py`: what it plans and computes.
`deploy/verify_standalone/KIND.py`: what it proves of an answer.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pydantic import Field

from label_dp.cli.commands import help_of
from label_dp.companions.costs.charge import check_charge
from label_dp.companions.costs.slices import Cost
from label_dp.companions.maps.places import number_text
from label_dp.documents import registry
from label_dp.documents.answer import Answer
from label_dp.documents.kind import REPLACE_ONE, Facts, Kind
from label_dp.documents.members import Strict
from label_dp.documents.registry import trusted_answer
from label_dp.documents.signing import ANSWER_TYPE
from label_dp.errors import InvalidRequest, MalformedAnswer, VerificationFailed
from label_dp.privacy import ZERO, Epsilon, EpsilonSplit
from label_dp.schemas.base import Ask, whole
from label_dp.schemas.numbers import Decimalish
from labels_party import bootstrap as computed
from labels_party.cli import app
from labels_party.client import answers
from labels_party.companions.cli import asking as work
from labels_party.companions.kinds.answer import AnswerKind, Computed
from labels_party.companions.mechanisms.private_prediction.lattice import laplace_noise, noisy
from labels_party.labels.batches import Batch
from labels_party.ledger.populations import Population
from labels_party.work.kind import Job, PlannedWork, SchemaKind
from tests.architecture.doors import awaited, blocking, shell
from tests.support import shared_routes
from tests.support.labels import LabelsParty, label_table
from tests.support.receipts import pair

pytestmark = pytest.mark.extended

ROOT = Path(__file__).parents[2]
COUNT, LABELS = "count", label_table(400)
EXACT = sum(label >= 3 for label in LABELS["label"].to_pylist())


class CountParameters(Strict):
    at_least: int


class CountResult(Strict):
    count: int


class CountFacts(Facts):
    noise_scale: str


def _rule(answer: Answer, _given: CountParameters, said: CountResult) -> None:
    check_charge(answer, Cost(answer.epsilon.randomize.fraction, Fraction(0)), REPLACE_ONE)
    if not 0 <= said.count <= answer.n:
        raise MalformedAnswer("a count lies between 0 and n.")


class Count(Ask):
    """How many labels lie at a position of the domain or above, with Laplace noise."""

    model_config = whole({"epsilon": "0.5", "at_least": 3})

    epsilon: Decimalish = Field(description="ε of this count; the whole batch is charged.")
    at_least: int = Field(ge=0, description="The first position of the domain that counts.")
    additional_release: bool = Field(default=False, description="Charge on top of what the batch carries already.")


class CountKind(AnswerKind[Count], SchemaKind[Count, Count]):
    """One pass over the sealed labels; replacing one label moves the count by at most 1."""

    name = COUNT
    adjacency = REPLACE_ONE
    schema = Count

    def plan(self, _batch: Batch, _population: Population, wish: Count) -> PlannedWork:
        split = EpsilonSplit(ZERO, ZERO, Epsilon.parse(wish.epsilon, positive=True))
        return self.asked(split, {"at_least": wish.at_least}, additional_release=wish.additional_release)

    def compute(self, job: Job) -> Computed:
        exact = sum(int((index >= job.work.plan["at_least"]).sum()) for _, index in job.labels.chunks())
        epsilon = job.work.split.randomize.fraction
        found = noisy(exact, 1, epsilon, (0, job.n), laplace_noise)
        facts = CountFacts(noise_scale=number_text(1 / epsilon))
        return Computed({"count": found}, "count with Laplace noise", "Dwork et al. 2006", facts, self.adjacency)


PROOF = """
from fractions import Fraction

from .kind import Answer, Kind
from .median import REPLACE_ONE
from .members import MANY, count, members


def check_count(given: Answer) -> str:
    count(members(given.parameters, ("at_least",), "a count")["at_least"], 0, MANY, "the first position")
    found = count(members(given.result, ("count",), "the result of a count")["count"], 0, given.n, "the count")
    given.check(given.epsilon, Fraction(0), REPLACE_ONE)
    return f"count: {found}"


KIND = Kind("count", check_count)
"""


READ = Kind(COUNT, CountParameters, CountResult, _rule, Count, facts=(CountFacts,))


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> None:
    """The two files, for the length of a test; and what modules make of all files once, when they are imported."""
    monkeypatch.setitem(registry.KINDS, COUNT, READ)
    monkeypatch.setitem(computed.ANSWER_KINDS, COUNT, CountKind)
    monkeypatch.setattr(app, "registered_commands", [*app.registered_commands])
    work.declare(COUNT, help_of(Count))
    monkeypatch.setattr(answers.AnswerCalls, COUNT, None, raising=False)  # taken away at the end
    answers.declare(READ)
    monkeypatch.setattr(shared_routes, "_known", {})


@pytest.fixture
def party(tmp_path: Path, count: None) -> Iterator[LabelsParty]:
    with LabelsParty(tmp_path / "home", worker=False) as party:
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


def test_command_and_both_clients_ask_for_it(party: LabelsParty, tmp_path: Path) -> None:
    batch, more = party.sealed_batch(LABELS), {"at_least": 3, "epsilon": "1"}
    asked = blocking(party, lambda client: client.count(batch, **more))
    again = awaited(party, lambda client: client.count(batch, "2", 4, additional_release=True))
    assert [answer["parameters"] for answer in (asked, again)] == [{"at_least": 3}, {"at_least": 4}]
    with pytest.raises(InvalidRequest, match="at_least"):
        blocking(party, lambda client: client.count(batch, "1", -1))
    assert "--at-least" in shell(party, tmp_path, "count", "--help")
    options = ("--batch", batch, "--epsilon", "3", "--at-least", "3", "--additional-release", "--out", "count.json")
    told = json.loads(shell(party, tmp_path, "count", *options, "--json"))
    assert (told["kind"], told["parameters"], told["epsilon_spent"]) == (COUNT, {"at_least": 3}, "6")
    assert "at least" in shell(party, tmp_path, "inspect", "count.json")
    assert COUNT in shell(party, tmp_path, "answers", "--kind", COUNT)
    pq.write_table(label_table(40, prefix="other"), tmp_path / "labels.parquet")
    file = ("--labels", "labels.parquet", "--id-column", "example_id", "--label-column", "label", "--domain", "0:10")
    file = (*file, "--population", "new", "--budget", "1", "--at-least", "0", "--out", "3.json")
    assert "lifetime 1" in shell(party, tmp_path, "count", *file, "--epsilon", "2", code=1)
    assert json.loads(shell(party, tmp_path, "count", *file, "--epsilon", "1", "--json"))["examples"] == 40
    refused = ("--batch", batch, "--epsilon", "1", "--at-least", "-1", "--out", "2.json")
    assert "--at-least" in shell(party, tmp_path, "count", *refused, code=2)
    assert party.spent(batch) == "6"


@pytest.mark.processes
def test_the_standalone_verifier_proves_it_and_refuses_what_was_changed(party: LabelsParty, tmp_path: Path) -> None:
    services, batch = party.services, party.sealed_batch(LABELS)
    _, asked = services.work.ask(services.work.queued(COUNT), batch, Count(epsilon="1", at_least=3), "test")
    assert services.pipeline.run(asked["id"])
    honest = services.work.envelope(asked["id"])
    answer, _ = trusted_answer(honest, services.key.public, None)
    folder = tmp_path / "copied"
    shutil.copytree(ROOT / "deploy" / "verify_standalone", folder)
    (folder / f"{COUNT}.py").write_text(PROOF)

    def verdict(envelope: bytes) -> tuple[int, str]:
        (tmp_path / "answer.json").write_bytes(envelope)
        words = ("answer", str(tmp_path / "answer.json"), "--key", str(services.home.public_key))
        done = subprocess.run([sys.executable, str(folder), *words], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    def lied(**members: Any) -> bytes:
        """Signed by the labels party itself."""
        return services.key.sign(ANSWER_TYPE, answer.document() | members)

    code, said = verdict(honest)
    assert (code, f"count: {answer.result['count']}" in said) == (0, True), said
    cheaper = answer.epsilon.as_json() | {"randomize": "0.5"}
    for members in (
        {"result": {"count": answer.n + 1}},
        {"parameters": {}},
        {"epsilon": cheaper},
        {"adjacency": "none"},
    ):
        assert verdict(lied(**members))[0] == 1, members
        with pytest.raises(VerificationFailed):
            trusted_answer(lied(**members), services.key.public, None)
    assert verdict(honest.replace(b"e", b"f", 1))[0] == 1
    (folder / f"{COUNT}.py").unlink()
    assert "unknown" in verdict(honest)[1]


@pytest.mark.usefixtures("count")
def test_its_receiver_acknowledges_it_and_both_audit_stores_agree(tmp_path: Path) -> None:
    with pair(tmp_path) as both:
        services = both.labels.services
        batch = both.labels.sealed_batch(LABELS)
        _, answer = services.work.ask(services.work.queued(COUNT), batch, Count(epsilon="1", at_least=3), "test")
        assert services.pipeline.run(answer["id"])
        both.clock.move(minutes=1)
        assert both.pull_answer(answer["id"]).problem is None
        assert [release for release, _ in both.receiver.receipts()] == [answer["id"]]
        for report in both.compare_both():
            assert (report["agrees"], report["notes"]) == (True, []), report
        services.database.read("check", services.audit.verify)
