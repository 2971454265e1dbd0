"""Four-eyes populations: nothing is charged or drawn before somebody else than who asked approves; and cancelling."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from label_dp.errors import Conflict, Unavailable
from labels_party.bootstrap import bootstrap
from labels_party.cli import app
from tests.support.labels import LabelsParty, label_table
from tests.support.ledger_places import SqlitePlace

POPULATION = {"name": "shop", "label": "revenue", "domain": "0:10", "lifetime_epsilon": "2", "four_eyes": True}


def sealed(client: TestClient, population: dict[str, Any] = POPULATION, prefix: str = "c") -> str:
    """Id of a sealed batch of the population, made on first use."""
    client.post("/v1/populations", json=population)
    batch = client.post(f"/v1/populations/{population['name']}/batches", json={"presence": "public"}).json()["id"]
    rows = [{"example_id": f"{prefix}{i}", "label": i % 11} for i in range(60)]
    assert client.post(f"/v1/batches/{batch}/labels", json={"records": rows}).status_code == 200
    assert client.post(f"/v1/batches/{batch}/seal").status_code == 200
    return str(batch)


def ask(client: TestClient, batch: str, epsilon: str = "1", **more: Any) -> dict[str, Any]:
    answer = client.post(f"/v1/batches/{batch}/releases", json={"epsilon": epsilon, "mechanism": "rr-on-bins"} | more)
    assert answer.status_code == 202, answer.text
    return dict(answer.json())


@pytest.fixture
def resting(tmp_path: Path, database_url: str) -> Any:
    """A party whose worker never runs, so that what waits stays visible."""
    with LabelsParty(tmp_path / "home", database_url=database_url, worker=False) as party:
        yield party


def kinds(party: LabelsParty) -> list[str]:
    return [e.kind for e in party.services.database.read("events", party.services.audit.events)]


@pytest.mark.parametrize("role", ["auditor", "approver"])
def test_a_request_waits_uncharged_and_unseen_until_another_key_approves(resting: LabelsParty, role: str) -> None:
    owner, officer = resting.client("owner"), resting.client(role)
    batch = sealed(owner)
    asked = ask(owner, batch)
    assert asked["state"] == "accepted"
    assert resting.spent(batch) == "0"
    assert resting.services.worker.drain() == 0
    assert owner.get(f"/v1/releases/{asked['id']}/manifest").status_code == 409

    refused = owner.post(f"/v1/releases/{asked['id']}/approve")
    assert (refused.status_code, refused.json()["code"]) == (403, "second-person-needed")
    assert resting.spent(batch) == "0"

    seen = officer.get(f"/v1/releases/{asked['id']}").json()
    assert seen["requested_by"].startswith("apikey:")
    approved = officer.post(f"/v1/releases/{asked['id']}/approve")
    assert (approved.status_code, approved.json()["state"]) == (200, "charged")
    assert approved.json()["approved_by"] not in (None, seen["requested_by"])
    assert resting.spent(batch) == "1"
    assert resting.services.worker.drain() == 1
    assert owner.get(f"/v1/releases/{asked['id']}").json()["state"] == "published"
    assert kinds(resting)[-4:] == ["release-requested", "release-approved", "release-charged", "release-published"]
    again = officer.post(f"/v1/releases/{asked['id']}/approve")
    assert (again.status_code, again.json()["code"]) == (409, "conflict")
    assert resting.spent(batch) == "1"


def test_the_audience_sees_no_name_of_who_decided(resting: LabelsParty) -> None:
    owner = resting.client("owner")
    asked = ask(owner, sealed(owner))
    resting.client("auditor").post(f"/v1/releases/{asked['id']}/approve")
    seen = resting.client("features").get(f"/v1/releases/{asked['id']}").json()
    assert (seen["requested_by"], seen["approved_by"], seen["approved"]) == (None, None, None)


def test_declining_charges_nothing_and_frees_the_batch(resting: LabelsParty) -> None:
    owner, second = resting.client("owner"), resting.client("owner")
    batch = sealed(owner)
    asked = ask(owner, batch)
    assert owner.post(f"/v1/releases/{asked['id']}/decline").json()["code"] == "second-person-needed"
    declined = second.post(f"/v1/releases/{asked['id']}/decline", json={"reason": "too early"}).json()
    assert (declined["state"], declined["problem"]["code"]) == ("failed", "release-declined")
    assert resting.spent(batch) == "0"
    assert second.post(f"/v1/releases/{asked['id']}/approve").json()["code"] == "conflict"
    event = resting.services.database.read("events", resting.services.audit.events)[-1]
    assert (event.kind, event.details["reason"]) == ("release-declined", "too early")
    assert ask(owner, batch)["state"] == "accepted"


def test_waiting_requests_hold_no_budget_and_are_judged_when_approved(resting: LabelsParty) -> None:
    owner, officer = resting.client("owner"), resting.client("auditor")
    batch = sealed(owner)
    first, second = ask(owner, batch, "1.5"), ask(owner, batch, "1.5", additional_release=True)
    assert officer.post(f"/v1/releases/{first['id']}/approve").status_code == 200
    over = officer.post(f"/v1/releases/{second['id']}/approve")
    assert (over.status_code, over.json()["code"]) == (403, "budget-exceeded")
    assert owner.get(f"/v1/releases/{second['id']}").json()["state"] == "accepted"
    assert resting.spent(batch) == "1.5"
    assert kinds(resting).count("release-approved") == 1
    # what can never fit is said at once
    assert owner.post(f"/v1/batches/{batch}/releases", json={"epsilon": "3", "additional_release": True}).json()[
        "code"
    ] == ("budget-exceeded")


def test_a_revoked_key_decides_nothing_even_if_it_came_in_before(resting: LabelsParty) -> None:
    owner = resting.client("owner")
    asked = ask(owner, sealed(owner))
    key_id, _ = resting.services.apikeys.create("auditor")
    resting.services.apikeys.revoke(key_id)
    with pytest.raises(Exception, match="revoked"):
        resting.services.decisions.approve(asked["id"], f"apikey:{key_id}")
    assert owner.get(f"/v1/releases/{asked['id']}").json()["state"] == "accepted"


def test_roles_that_may_not_decide_learn_nothing(resting: LabelsParty) -> None:
    owner = resting.client("owner")
    asked = ask(owner, sealed(owner))
    for role in ("ingest", "features"):
        for verb in ("approve", "decline", "cancel"):
            assert resting.client(role).post(f"/v1/releases/{asked['id']}/{verb}").status_code == 404
    assert resting.client("auditor").post(f"/v1/releases/{asked['id']}/cancel").status_code == 404


def test_approving_twice_with_one_idempotency_key_is_one_charge(resting: LabelsParty) -> None:
    owner, officer = resting.client("owner"), resting.client("auditor")
    batch = sealed(owner)
    asked = ask(owner, batch)
    replies = [
        officer.post(f"/v1/releases/{asked['id']}/approve", headers={"Idempotency-Key": "a"}).json() for _ in range(2)
    ]
    assert replies[0] == replies[1]
    assert resting.spent(batch) == "1"


def test_cancelling_returns_a_charge_only_while_no_draw_ever_began(resting: LabelsParty) -> None:
    owner = resting.client("owner")
    batch = sealed(owner, POPULATION | {"name": "plain", "four_eyes": False})
    charged = ask(owner, batch)
    assert charged["state"] == "charged"
    assert resting.spent(batch) == "1"
    cancelled = owner.post(f"/v1/releases/{charged['id']}/cancel").json()
    assert (cancelled["state"], cancelled["problem"]["code"]) == ("failed", "release-cancelled")
    assert resting.spent(batch) == "0"
    assert kinds(resting)[-2:] == ["release-cancelled", "charge-returned"]
    assert not resting.services.pipeline.run(charged["id"])
    assert owner.post(f"/v1/releases/{charged['id']}/cancel").json()["code"] == "conflict"
    assert resting.spent(batch) == "0"

    begun = ask(owner, batch)
    resting.services.database.write("lease", lambda c: resting.services.pipeline.take(c, begun["id"]))
    assert owner.post(f"/v1/releases/{begun['id']}/cancel").json()["code"] == "conflict"
    assert resting.spent(batch) == "1"
    resting.services.database.read("verify", resting.services.audit.verify)


def test_a_waiting_request_can_be_cancelled_without_a_charge(resting: LabelsParty) -> None:
    owner = resting.client("owner")
    batch = sealed(owner)
    asked = ask(owner, batch)
    assert owner.post(f"/v1/releases/{asked['id']}/cancel").json()["state"] == "failed"
    assert resting.spent(batch) == "0"
    assert "charge-returned" not in kinds(resting)


def test_purged_labels_cannot_be_approved_away(resting: LabelsParty) -> None:
    owner = resting.client("owner")
    batch = sealed(owner)
    asked = ask(owner, batch)
    resting.services.retention.purge(batch, "test")
    with pytest.raises(Conflict, match="purged"):
        resting.services.decisions.approve(asked["id"], "command line: Ann")
    assert resting.spent(batch) == "0"


def test_an_old_copy_in_which_it_waits_is_refused_once_it_was_drawn(tmp_path: Path) -> None:
    """Its charge would be forgotten, and an approval would draw it again."""
    place = SqlitePlace(tmp_path / "home")
    with LabelsParty(place.home, worker=False) as party:
        asked = ask(party.client("owner"), sealed(party.client("owner")))
        place.copy("waits")
        party.services.decisions.approve(asked["id"], "command line: Ann")
        assert party.services.worker.drain() == 1
    place.put_back("waits")
    with pytest.raises(Unavailable, match=asked["id"]):
        bootstrap(party.settings)


def test_the_command_line_waits_prints_what_to_do_and_finishes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABELS_PARTY_HOME", str(tmp_path / "home"))
    pq.write_table(label_table(80), tmp_path / "labels.parquet")
    runner = CliRunner()
    base = ["privatize", "--labels", str(tmp_path / "labels.parquet"), "--id-column", "example_id"]
    base += ["--label-column", "label", "--domain", "0:10", "--epsilon", "1", "--population", "shop", "--budget", "2"]
    base += ["--out", str(tmp_path / "m.parquet"), "--four-eyes"]

    def run(*words: str) -> Any:
        return runner.invoke(app, list(words))

    assert "--as NAME" in str(run(*base).exception)
    waiting = run(*base, "--as", "Ann")
    assert waiting.exit_code == 0, waiting.output
    assert "labels-party approve rel_" in " ".join(waiting.output.split())
    assert not (tmp_path / "m.parquet").exists()
    release = next(word for word in waiting.output.split() if word.startswith("rel_"))
    assert "waits for a second person" in str(run("message", release, "--out", str(tmp_path / "m.parquet")).exception)
    assert "somebody else" in str(run("approve", release, "--as", "ann").exception)
    assert run("approve", release, "--as", "Bob").exit_code == 0
    done = run("message", release, "--out", str(tmp_path / "m.parquet"))
    assert done.exit_code == 0, done.output
    assert pq.read_metadata(tmp_path / "m.parquet").num_rows == 80


def test_a_request_of_a_key_revoked_since_is_declined_only(resting: LabelsParty) -> None:
    owner, officer = resting.client("owner"), resting.client("auditor")
    asked = ask(owner, sealed(owner))
    resting.services.apikeys.revoke(asked["requested_by"].removeprefix("apikey:"))
    refused = officer.post(f"/v1/releases/{asked['id']}/approve")
    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
    assert "decline it" in refused.json()["detail"]
    assert "release-charged" not in kinds(resting)
    assert officer.post(f"/v1/releases/{asked['id']}/decline").json()["state"] == "failed"
