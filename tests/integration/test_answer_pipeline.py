"""Answers by the two-transaction protocol: charge first, one document published, crashes at every named point."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from label_dp.audit import events
from label_dp.errors import (
    AlreadyReleased,
    BudgetExceeded,
    Conflict,
    InvalidMechanism,
    LabelDPError,
    SecondPersonNeeded,
    Unavailable,
)
from labels_party.companions.kinds.answer import Computed
from labels_party.work.kind import Job
from tests.integration.test_release_pipeline import Crash, CrashAt
from tests.support.calibrations import calibration, charged, score_table
from tests.support.labels import FakeClock, LabelsParty, label_table

TABLE = label_table(200)
SCORES = score_table(TABLE)
POINTS = [
    "answer.charge:begin",
    "answer.charge:before-commit",
    "answer.charge:after-commit",
    "answer.lease:begin",
    "answer.lease:before-commit",
    "answer.lease:after-commit",
    "answer.draw:begin",
    "answer.draw:written",
    "answer.draw:durable",
    "answer.publish:begin",
    "answer.publish:before-commit",
    "answer.publish:after-commit",
]

DOCUMENT = {"answer.dsse.json"}


def state(party: LabelsParty, answer: str) -> Any:
    return party.services.database.read("test", lambda c: party.services.work.get(c, answer))


def envelope(party: LabelsParty, answer: str) -> bytes:
    return party.services.work.envelope(answer)


def kinds(party: LabelsParty) -> list[str]:
    return [e.kind for e in party.services.database.read("test", party.services.audit.events)]


def left(home: Path) -> set[str]:
    """Files below `work/`, with their folders' names for those of inputs."""
    return {p.name for p in (home / "work").rglob("*") if p.is_file() or p.name.startswith("inputs-")}


def test_an_answer_is_charged_computed_and_verifiable(party_on: LabelsParty) -> None:
    batch = party_on.sealed_batch(TABLE)
    answer = charged(party_on, batch, SCORES, "0.75")
    assert party_on.spent(batch) == "0.75"
    assert party_on.services.pipeline.run(answer)
    found = calibration(party_on, answer)
    assert (found.answer.n, str(found.answer.epsilon.total), str(found.answer.epsilon_spent)) == (200, "0.75", "0.75")
    assert found.digest == state(party_on, answer).sha256
    assert kinds(party_on)[-2:] == [events.CHARGED, events.ANSWER_PUBLISHED]
    assert left(party_on.home) == DOCUMENT
    assert not party_on.services.pipeline.run(answer)
    party_on.services.database.read("verify", party_on.services.audit.verify)


@pytest.mark.parametrize("point", POINTS)
def test_a_crash_at_any_point_charges_once_and_publishes_once(point: str, database_url: str, tmp_path: Path) -> None:
    home, faults = tmp_path / "home", CrashAt()
    first = LabelsParty(home, database_url=database_url, faults=faults)
    batch = first.sealed_batch(TABLE)
    faults.point = point
    with pytest.raises(Crash):
        first.services.pipeline.run(charged(first, batch, SCORES))
    first.services.database.dispose()  # the process is gone; its worker lock goes with it
    first.services.pipeline.close()
    with LabelsParty(home, database_url=database_url) as again:
        standing = again.services.database.read("look", lambda c: again.services.work.of_batch(c, batch))
        if point in POINTS[:2]:
            assert standing == []
            assert again.spent(batch) == "0"
            return
        (answer,) = [a.id for a in standing]
        seen = envelope(again, answer) if point == POINTS[-1] else None
        again.services.worker.drain()
        assert state(again, answer).state == "published"
        assert again.spent(batch) == "1"
        assert seen is None or envelope(again, answer) == seen
        calibration(again, answer)
        assert kinds(again).count(events.CHARGED) == kinds(again).count(events.ANSWER_PUBLISHED) == 1
        assert point == POINTS[-1] or left(home) == DOCUMENT


def test_every_fault_point_of_an_answer_is_named_above(tmp_path: Path) -> None:
    faults = CrashAt()
    with LabelsParty(tmp_path / "home", faults=faults) as party:
        batch = party.sealed_batch(TABLE)
        faults.seen.clear()
        party.services.pipeline.run(charged(party, batch, SCORES))
    assert [p for p in faults.seen if p.startswith("answer.")] == POINTS


def instead(party: LabelsParty, act: Callable[[Job], None]) -> None:
    """Calibrations `act` first when they are asked to compute."""
    kind: Any = party.services.companions.calibration
    compute = kind.compute

    def both(job: Job) -> Computed:
        act(job)
        found: Computed = compute(job)
        return found

    kind.compute = both


def test_a_fenced_worker_publishes_nothing(tmp_path: Path) -> None:
    with LabelsParty(tmp_path / "home") as party:
        batch = party.sealed_batch(TABLE)
        answer = charged(party, batch, SCORES)
        seen = []

        def taken_over(_: Job) -> None:
            other = LabelsParty(tmp_path / "home")
            other.services.pipeline.worker.holds = lambda _owner, _until: False  # type: ignore[method-assign]  # the lease ran out
            # the inputs must outlive the other's publication for the slow one to come to its end
            ended = other.services.pipeline.ended
            other.services.pipeline.ended = lambda _lease, _outcome: None  # type: ignore[method-assign]  # as above
            assert other.services.pipeline.run(answer)
            other.services.pipeline.ended = ended  # type: ignore[method-assign]  # as above
            seen.append(envelope(other, answer))
            other.services.close()

        instead(party, taken_over)
        assert party.services.pipeline.run(answer) is False
        assert (state(party, answer).state, state(party, answer).attempt) == ("published", 2)
        assert envelope(party, answer) == seen[0]
        assert party.spent(batch) == "1"


@pytest.mark.parametrize("error", [InvalidMechanism("the sum of the labels is 612"), ValueError("label 7.5")])
def test_a_failure_keeps_its_charge_and_tells_nothing(
    error: Exception, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with LabelsParty(tmp_path / "home") as party:
        batch = party.sealed_batch(TABLE)
        answer = charged(party, batch, SCORES)

        def fail(_: Job) -> None:
            raise error

        instead(party, fail)
        with pytest.raises(type(error)):
            party.services.pipeline.run(answer)
        found = state(party, answer)
        assert (found.state, party.spent(batch)) == ("failed", "1")
        told = str(found.problem) + caplog.text + str(party.services.database.read("e", party.services.audit.events))
        assert "is 612" not in told  # 612 alone is part of many a digest
        assert "label 7.5" not in told
        assert kinds(party)[-1] == events.ANSWER_FAILED
        assert left(party.home) == set()
        with pytest.raises(Conflict):
            envelope(party, answer)


def test_a_full_disk_is_tried_again_at_no_charge(tmp_path: Path) -> None:
    with LabelsParty(tmp_path / "home") as party:
        batch = party.sealed_batch(TABLE)
        answer = charged(party, batch, SCORES)
        full = [True]

        def no_space(_: Job) -> None:
            if full.pop() if full else False:
                raise OSError(28, "No space left on device")

        instead(party, no_space)
        with pytest.raises(Unavailable):
            party.services.pipeline.run(answer)
        assert state(party, answer).lease_owner is None
        assert party.services.pipeline.run(answer)
        assert (state(party, answer).attempt, party.spent(batch)) == (2, "1")


# --- what else was charged to the batch, and the end of its labels --------------------------------------------


def test_a_second_charge_of_a_batch_is_asked_for_as_one(tmp_path: Path) -> None:
    with LabelsParty(tmp_path / "home") as party:
        batch = party.sealed_batch(TABLE, lifetime="4")
        answer = charged(party, batch, SCORES)
        with pytest.raises(AlreadyReleased, match=answer):
            party.charge(batch)
        with pytest.raises(AlreadyReleased, match=answer):
            charged(party, batch, SCORES)
        assert party.spent(batch) == "1"
        release = party.release(batch, additional_release=True)
        with pytest.raises(AlreadyReleased, match=release):
            charged(party, batch, SCORES)
        party.services.pipeline.run(charged(party, batch, SCORES, additional_release=True))
        assert party.spent(batch) == "3"
        with pytest.raises(BudgetExceeded):
            charged(party, batch, SCORES, "1.5", additional_release=True)
        assert party.spent(batch) == "3"
        party.services.pipeline.run(answer)
        assert str(calibration(party, answer).answer.epsilon_spent) == "3"


def test_labels_are_purged_when_no_answer_needs_them_and_answers_stay(tmp_path: Path) -> None:
    with LabelsParty(tmp_path / "home") as party:
        batch = party.sealed_batch(TABLE)
        answer = charged(party, batch, SCORES)
        with pytest.raises(Conflict, match=f"Calibration '{answer}'"):
            party.services.retention.purge(batch, "test")
        party.services.pipeline.run(answer)
        before = envelope(party, answer)
        party.services.retention.purge(batch, "test")
        assert envelope(party, answer) == before
        with pytest.raises(Conflict, match="purged"):
            charged(party, batch, SCORES, additional_release=True)
        assert party.spent(batch) == "1"


def with_rules(party: LabelsParty, **rules: Any) -> str:
    """The id of a sealed batch of a population with these rules, by REST."""
    owner = party.client()
    body = {"name": "ruled", "label": "revenue", "domain": "0:10", "lifetime_epsilon": "3", "missing_label": 0}
    assert owner.post("/v1/populations", json=body | rules).status_code == 201
    batch: str = owner.post("/v1/populations/ruled/batches", json={"presence": "public"}).json()["id"]
    party.services.intake.add_labels(batch, TABLE, owner=True)
    party.services.sealer.seal(batch, "test")
    return batch


def test_retention_counts_from_the_first_answer(tmp_path: Path) -> None:
    clock = FakeClock()
    with LabelsParty(tmp_path / "home", clock=clock, worker=False) as party:
        batch = with_rules(party, retention_days=2)
        party.services.pipeline.run(charged(party, batch, SCORES))
        assert party.services.retention.run_due() == 0
        clock.move(days=2)
        assert party.services.retention.run_due() == 1
        assert clock.now > datetime(2030, 1, 2, tzinfo=UTC)


def test_an_answer_of_a_four_eyes_population_waits_as_a_message_does(tmp_path: Path) -> None:
    with LabelsParty(tmp_path / "home", worker=False) as party:
        batch = with_rules(party, four_eyes=True)
        answer = charged(party, batch, SCORES)
        assert (state(party, answer).state, party.spent(batch)) == ("accepted", "0")
        assert party.services.worker.drain() == 0
        with pytest.raises(SecondPersonNeeded):
            party.services.decisions.approve(answer, "test")
        owner = party.client()
        assert owner.post(f"/v1/releases/{answer}/approve").status_code == 404  # it is no release
        told = owner.post(f"/v1/answers/{answer}/approve").json()
        assert (told["state"], told["requested_by"]) == ("charged", "test")
        assert told["approved_by"].startswith("apikey:")
        assert party.spent(batch) == "1"
        assert party.services.worker.drain() == 1
        calibration(party, answer)
        asked, approved, paid, published = kinds(party)[-4:]
        assert (asked, approved, paid) == (events.REQUESTED, events.APPROVED, events.CHARGED)
        assert published == events.ANSWER_PUBLISHED
        assert left(party.home) == DOCUMENT
        party.services.database.read("verify", party.services.audit.verify)


@pytest.mark.parametrize("end", ["decline", "cancel", "purge"])
def test_an_answer_that_is_not_approved_costs_nothing_and_leaves_nothing(end: str, tmp_path: Path) -> None:
    with LabelsParty(tmp_path / "home", worker=False) as party:
        batch = with_rules(party, four_eyes=True)
        answer = charged(party, batch, SCORES)
        if end == "purge":
            party.services.retention.purge(batch, "other")
            party.services.pipeline.sweep()
        else:
            getattr(party.services.decisions, end)(answer, "other")
        assert (state(party, answer).state, party.spent(batch)) == ("failed", "0")
        assert left(party.home) == set()
        with pytest.raises(Conflict, match="does not wait"):
            party.services.decisions.approve(answer, "other")
        party.services.database.read("verify", party.services.audit.verify)


def test_audiences_of_a_four_eyes_population_charge_nothing_by_themselves(tmp_path: Path) -> None:
    with LabelsParty(tmp_path / "home", worker=False) as party:
        batch = with_rules(party, four_eyes=True)
        answer = party.client().put(f"/v1/batches/{batch}/calibration-allowance", json={"epsilon": "1"})
        assert (answer.status_code, answer.json()["code"]) == (403, "second-person-needed")
        assert party.spent(batch) == "0"


def test_an_erasure_waits_for_the_computation_and_names_what_stays_out(tmp_path: Path) -> None:
    with LabelsParty(tmp_path / "home", worker=False) as party:
        batch, owner = with_rules(party), party.client()
        answer = charged(party, batch, SCORES)
        body = {"example_ids": ["click-000003"]}

        def erase(_: Job) -> None:
            assert owner.post("/v1/populations/ruled/erasures", json=body).status_code == 202
            assert party.services.erasures.finish() == 1

        instead(party, erase)
        assert party.services.pipeline.run(answer)
        assert party.services.erasures.finish() == 0
        (entry,) = owner.get("/v1/populations/ruled/erasures").json()
        assert [s["work"] for s in entry["cannot_be_recalled"]] == [answer]


def test_an_old_copy_of_the_database_is_noticed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with LabelsParty(home) as party:
        batch = party.sealed_batch(TABLE)
        party.services.database.dispose()
        copy = (home / "labels-party.sqlite").read_bytes()
        wal = home / "labels-party.sqlite-wal"
        assert not wal.exists() or not wal.stat().st_size
        party.services.pipeline.run(charged(party, batch, SCORES))
    for name in ("labels-party.sqlite-wal", "labels-party.sqlite-shm"):
        (home / name).unlink(missing_ok=True)
    (home / "labels-party.sqlite").write_bytes(copy)
    with pytest.raises(LabelDPError, match="older than the folder"):
        LabelsParty(home)
