"""Answers at their receiver: every kind pulled, accounted for once, kept, acknowledged; two documents are on record."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from deploy.verify_standalone.audit import open_export
from features_party.bootstrap import Services
from features_party.receive.acceptances import ANSWER
from features_party.receive.labels_service import LabelsService
from features_party.receive.offers import pull_answer
from features_party.receive.population_accounts import received
from label_dp import errors
from label_dp.audit.events import ACCEPTED, ANSWER_ACCEPTED, RECEIVED, SECOND_REFUSED, Event
from label_dp.audit.receipts import ReceiptChain
from label_dp.audit.show import sentence
from label_dp.companions import kinds
from label_dp.documents import registry
from label_dp.documents.receipt import Receipt, open_receipt
from label_dp.privacy import Epsilon
from tests.support.calibrations import charged, score_table, signed
from tests.support.labels import label_table
from tests.support.labels_api import is_problem
from tests.support.messages import Sender, features_party, one_bit, world
from tests.support.predicting import ask, made, with_features
from tests.support.predicting import tables as example_tables
from tests.support.receipts import Away, Pair, changed, first_receipt, pair

pytestmark = pytest.mark.extended

VALUES, CUTS = np.array([0.5, 2.0, 8.5]), [20, 60]


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Pair]:
    with pair(tmp_path) as started:
        yield started


def of_kind(services: Any, *kinds: str) -> list[Event]:
    return services.database.read("t", lambda c: [e for e in services.audit.scan(c) if e.kind in kinds])


# --- from a labels party -----------------------------------------------------------------------------------


def every_kind(both: Pair) -> dict[str, str]:
    """A published answer of each kind, by its kind."""
    labels = label_table(120)
    batch = both.labels.sealed_batch(labels, "calibrated", label="other")
    found = {"median": both.median(), "calibration": charged(both.labels, batch, score_table(labels))}
    assert both.labels.services.pipeline.run(found["calibration"])
    y, features = example_tables()
    predictor = made(both.labels, with_features(both.labels, y, features, population="predicted", label="third"))
    return found | {"prediction": ask(both.labels, predictor, audience="features-party").answer}


def test_every_kind_of_answer_is_counted_once_and_acknowledged_in_one_list(both: Pair) -> None:
    release, answers = both.release(), every_kind(both)
    both.pull(release)
    for answer in answers.values():
        assert both.pull_answer(answer).as_json() == {"delivered": 1, "problem": None}
        assert both.pull_answer(answer).sentence == "receipts: all were delivered before"
    services = both.receiver.services
    accepted = of_kind(services, ACCEPTED, ANSWER_ACCEPTED)
    assert [e.subject.work for e in accepted] == [release, *answers.values()]
    assert [e.details.get("answer") for e in accepted] == [None, *answers]
    assert all(e.split.total > Epsilon(0) for e in accepted)
    kept = of_kind(both.labels.services, RECEIVED)
    opened = [open_receipt(e.details["receipt"], both.receiver.key.public) for e in kept]
    assert [(r.position, r.document_id) for r in opened] == list(enumerate([release, *answers.values()], 1))
    both.labels.services.database.read("t", both.labels.services.receipts.check)
    for found in both.compare_both():
        assert (found["agrees"], found["notes"]) == (True, []), found
    for answer in answers.values():
        found = services.answers.open(answer)
        assert found.envelope == both.labels.services.work.envelope(answer)
        assert services.answers.open(found.digest) == found
    assert [row["answer"] for row in services.acceptances.list(ANSWER)] == list(answers.values())
    totals = received(of_kind(services, ACCEPTED, ANSWER_ACCEPTED))
    assert [(t["messages"], t["answers"]) for t in totals] == [(1, 1), (0, 1), (0, 1)]
    assert totals[0]["epsilon_per_example"] == "1"


def test_a_receipt_of_an_answer_waits_for_the_next_pull(both: Pair) -> None:
    answer, receiver = both.median(), both.receiver
    envelope = both.labels.services.work.envelope(answer)
    receiver.services.answers.accept(envelope)
    away = receiver.services.receipts.deliver(Away(), both.labels.services.key.public.id)
    assert "the next pull tries again" in away.sentence
    both.clock.move(minutes=1)
    for found in both.compare_both():
        assert [f["kind"] for f in found["findings"]] == ["missing-receipt"]
        assert f"(answer {answer}, accepted" in found["findings"][0]["sentence"]
    assert both.pull().delivered == 2
    assert all(found["agrees"] for found in both.compare_both())


@pytest.mark.parametrize("party", ["labels", "features"])
def test_a_party_that_lost_an_answer_is_found_by_both(both: Pair, party: str) -> None:
    both.pull()
    home = both.labels.home if party == "labels" else both.receiver.home
    copy, answer = both.keep_copy(home), both.median()
    both.pull_answer(answer)
    both.restore(home, copy)
    for found in both.compare_both():
        kinds = [f["kind"] for f in found["findings"]]
        assert kinds == (["missing-work"] if party == "labels" else ["rollback", "missing-work"]), found
        assert found["findings"][-1]["sentence"].startswith(f"Answer {answer}")
    # the same answer again on the same day would be the same history again
    said = both.pull() if party == "labels" else both.pull_answer()
    assert (f"that of answer {answer} was refused" if party == "labels" else "rolled back") in str(said.problem)


def test_an_answer_that_nobody_accepted_yet_is_no_finding(both: Pair) -> None:
    both.pull()
    both.median()
    for found in both.compare_both():
        assert found["agrees"], found
        assert found["notes"] == ["1 published answer not accepted by 'features-party' (perhaps not yet)"]


# --- receipts at the labels party --------------------------------------------------------------------------

WRONG: dict[str, tuple[Callable[[Receipt], Receipt], str]] = {
    "another answer": (lambda r: changed(r, document_id="ans_0"), "another answer"),
    "another document": (lambda r: changed(r, document_digest="1" * 64), "another document"),
    "another labels party": (lambda r: changed(r, labels_key_id="ed25519:" + "0" * 64), "another labels party"),
    "another audience": (lambda r: changed(r, audience="somebody"), "another audience"),
}


def test_receipts_of_answers_are_checked_as_those_of_releases(both: Pair) -> None:
    answer, reader = both.median(), both.labels.client("features")
    services = both.labels.services
    stored = services.database.read("t", lambda c: services.work.get(c, answer))
    right = first_receipt(answer, str(stored.sha256), services.key.public.id)

    def send(receipt: Receipt, path: str = f"/v1/answers/{answer}/receipt", by: Any = reader) -> httpx.Response:
        found: httpx.Response = by.post(path, json=receipt.signed(both.receiver.key))
        return found

    for change, says in WRONG.values():
        refused = send(change(right))
        is_problem(refused, 422, "malformed-receipt")
        assert says in refused.json()["detail"]
    is_problem(send(right, "/v1/answers/ans_none/receipt"), 404, "not-found")
    is_problem(send(right, f"/v1/releases/{answer}/receipt"), 404, "not-found")
    is_problem(send(right, by=both.labels.client("features", "somebody")), 404, "not-found")
    batch = both.labels.sealed_batch(label_table(20, prefix="few"))
    waiting = charged(both.labels, batch, score_table(label_table(20, prefix="few")))
    is_problem(send(changed(right, document_id=waiting), f"/v1/answers/{waiting}/receipt"), 409, "conflict")
    release = both.release()
    is_problem(send(right, f"/v1/releases/{release}/receipt"), 422, "malformed-receipt")
    assert of_kind(services, RECEIVED) == []
    assert (send(right).status_code, send(right).status_code) == (201, 200)
    is_problem(send(changed(right, accepted="2030-01-02")), 409, "receipt-conflict")
    (kept,) = of_kind(services, RECEIVED)
    assert sentence(kept).startswith(f"features-party acknowledged median {answer} with its receipt 1")


# --- refusals ----------------------------------------------------------------------------------------------


@pytest.fixture
def sender() -> Sender:
    return Sender()


@pytest.fixture
def party(tmp_path: Path, sender: Sender) -> Iterator[Services]:
    services = features_party(tmp_path / "home")
    services.pinned.pin(sender.public_key(tmp_path))
    yield services
    services.close()


def test_another_document_under_a_known_id_is_refused_and_on_record_once(
    party: Services, sender: Sender, tmp_path: Path
) -> None:
    first = party.answers.accept(signed(sender.key, VALUES, CUTS))
    assert (first.kept, first.fresh) == (True, True)
    other = signed(sender.key, VALUES + 1, CUTS)
    for _ in range(2):
        with pytest.raises(errors.ReplayConflict, match="another document"):
            party.answers.accept(other)
    (event,) = of_kind(party, SECOND_REFUSED)
    digest = party.answers.verify(other).digest
    assert event.details == {
        "answer": "calibration",
        "key_id": sender.key.public.id,
        "accepted": first.digest,
        "refused": digest,
    }
    assert event.split.total == Epsilon(0)
    assert digest in sentence(event)
    assert "calibration ans_1" in sentence(event)
    third = signed(sender.key, VALUES + 0.5, CUTS)
    with pytest.raises(errors.ReplayConflict):
        party.answers.accept(third)
    assert len(of_kind(party, SECOND_REFUSED)) == 2
    assert party.answers.open("ans_1") == replace(first, fresh=False)
    assert len(of_kind(party, ANSWER_ACCEPTED)) == 1
    # and of a release likewise
    data = world(20)
    for seed in (0, 0, 1, 1):
        sender.write(tmp_path / "m.parquet", data.ids, data.labels, one_bit(), seed=seed)
        if seed == 0:
            party.messages.accept(tmp_path / "m.parquet")
        else:
            with pytest.raises(errors.ReplayConflict, match="another manifest"):
                party.messages.accept(tmp_path / "m.parquet")
    of_release = [e for e in of_kind(party, SECOND_REFUSED) if e.subject.work == "rel_1"]
    assert [set(e.details) for e in of_release] == [{"key_id", "accepted", "refused"}]
    assert "another document of release rel_1" in sentence(of_release[0])
    party.database.read("t", party.audit.verify)
    own, export = party.home.own_key().public, tmp_path / "export.json"
    export.write_bytes(party.database.read("t", lambda c: party.audit.export(c, party.home.own_key())))
    told = open_export(export, Ed25519PublicKey.from_public_bytes(own.raw), own.id)[1]
    assert "2 signed receipts, linked to each other" in told


def test_a_crash_at_any_point_of_an_acceptance_is_mended_by_the_next(
    party: Services, sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def dying(point: str) -> Callable[[str], None]:
        def fault(name: str) -> None:
            if name == point:
                raise Killed

        return fault

    for number, (point, committed) in enumerate(
        [("answer.accept:begin", False), ("answer.accept:before-commit", False), ("answer.accept:after-commit", True)]
    ):
        name = f"ans_{number}"
        envelope = signed(sender.key, VALUES, CUTS, id=name, epsilon_spent=f"{(number + 1) / 2:g}")
        monkeypatch.setattr(party.database, "fault", dying(point))
        with pytest.raises(Killed):
            party.answers.accept(envelope)
        monkeypatch.undo()
        assert len(of_kind(party, ANSWER_ACCEPTED)) == number + committed
        assert party.answers.accept(envelope).fresh is not committed
        assert party.answers.open(name).envelope == envelope
    assert len(of_kind(party, ANSWER_ACCEPTED)) == 3
    ReceiptChain.of(party.database.read("t", lambda c: list(party.audit.scan(c))), party.home.own_key().public)


def test_what_does_not_verify_leaves_nothing(party: Services, sender: Sender) -> None:
    good, stranger = signed(sender.key, VALUES, CUTS), Sender()
    cases: list[tuple[bytes, type[errors.LabelDPError]]] = [
        (signed(stranger.key, VALUES, CUTS), errors.SignatureInvalid),
        (signed(sender.key, VALUES, CUTS, audiences=["other"]), errors.AudienceMismatch),
        (signed(sender.key, VALUES, CUTS, kind="unheard-of"), errors.UnsupportedVersion),
        (signed(sender.key, VALUES, CUTS, id="a" * 65), errors.LabelDPError),
        (signed(sender.key, VALUES, CUTS, batch="a" * 65), errors.LabelDPError),
        (good.replace(b'"payload":"ey', b'"payload":"eX'), errors.LabelDPError),
        (good[:-1], errors.LabelDPError),
        (b"", errors.LabelDPError),
    ]
    for envelope, kind in cases:
        with pytest.raises(kind):
            party.answers.accept(envelope)
    assert of_kind(party, ANSWER_ACCEPTED, SECOND_REFUSED) == []
    assert party.acceptances.list(ANSWER) == []
    assert list(party.home.answers.iterdir()) == []
    assert party.answers.accept(good).fresh


def test_labels_parties_may_choose_the_same_id(party: Services, sender: Sender) -> None:
    other = Sender()
    mine = party.answers.accept(signed(sender.key, VALUES, CUTS))
    theirs = party.answers.accept(signed(other.key, VALUES, CUTS), other.key.public)
    assert theirs.fresh
    with pytest.raises(errors.Conflict, match="digest"):
        party.answers.open("ans_1")
    assert party.answers.open(theirs.digest).answer.key_id == other.key.public.id
    assert party.answers.open(mine.digest).digest == mine.digest


def test_a_lost_or_damaged_copy_is_noticed_and_accepting_again_repairs_it(party: Services, sender: Sender) -> None:
    envelope = signed(sender.key, VALUES, CUTS)
    party.answers.accept(envelope)
    (file,) = party.home.answers.iterdir()
    for damaged in (None, b"", signed(sender.key, VALUES + 1, CUTS)):
        file.unlink()
        if damaged is not None:
            file.write_bytes(damaged)
        with pytest.raises(errors.MalformedAnswer, match="accept the answer again"):
            party.answers.open("ans_1")
        assert party.answers.accept(envelope).fresh is False
        assert party.answers.open("ans_1").envelope == envelope
    with pytest.raises(errors.NotFound):
        party.answers.open("ans_2")
    assert len(of_kind(party, ANSWER_ACCEPTED)) == 1


def test_a_pull_is_tried_again_and_takes_the_answer_it_asked_for_only(sender: Sender) -> None:
    good, calls = signed(sender.key, VALUES, CUTS), list[str]()

    def service(handle: Callable[[httpx.Request], httpx.Response]) -> LabelsService:
        return LabelsService("http://labels", "k", transport=httpx.MockTransport(handle), sleep=lambda _s: None)

    def flaky(request: httpx.Request) -> httpx.Response:
        calls.append(request.url.path)
        if len(calls) % 3:
            return httpx.Response(503)
        return httpx.Response(200, content=good if request.url.path.endswith("document") else b'{"state":"published"}')

    def choose(_: bytes) -> Any:
        return sender.key.public

    with service(flaky) as labels:
        assert pull_answer(labels, "ans_1", choose, "features-party") == good
    assert calls == ["/v1/answers/ans_1"] * 3 + ["/v1/answers/ans_1/document"] * 3

    def refused(state: Any, document: bytes = good, answer: str = "ans_1") -> str:
        def handle(request: httpx.Request) -> httpx.Response:
            if request.url.path.endswith("document"):
                return httpx.Response(200, content=document)
            return httpx.Response(200, json={"state": state})

        with service(handle) as labels, pytest.raises(errors.LabelDPError) as found:
            pull_answer(labels, answer, choose, "features-party")
        return found.value.detail

    assert "try again later" in refused("computing")
    assert "will not be published" in refused("failed")
    assert "unknown" in refused("\x1b[2J")
    assert "unknown" in refused(["published"])
    assert "another answer" in refused("published", answer="ans_2")
    assert "larger than" in refused("published", b"x" * (2 << 20))
    assert refused("published", signed(Sender().key, VALUES, CUTS))


def test_every_kind_that_is_defined_is_read_here() -> None:
    """A kind that the registry does not list would be refused as unknown."""
    folder = Path(kinds.__file__ or "").parent
    defining = {
        path.stem for path in folder.glob("*.py") if re.search(r"^KIND = Kind\(", path.read_text("utf-8"), re.M)
    }
    assert {"calibration", "median", "prediction"} <= defining
    assert {name.replace("-", "_") for name in registry.KINDS} == defining
