"""Lists for the party's own people: who has what, which batches there are, and the names of who did it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from pydantic import ValidationError

from label_dp.actors import called, name_of
from label_dp.errors import InvalidInput, Unavailable
from label_dp.schemas.filters import GivenFilter
from tests.integration.test_four_eyes import POPULATION, ask, sealed
from tests.support.labels import FakeClock, LabelsParty, label_table
from tests.support.labels_cli import Run, refused
from tests.support.pages import signed_in
from tests.support.receipts import pair

pytestmark = pytest.mark.extended

BOTH = ["features-party", "other"]


@pytest.fixture
def resting(tmp_path: Path, database_url: str) -> Any:
    """A party whose worker never runs by itself."""
    with LabelsParty(tmp_path / "home", database_url=database_url, worker=False) as party:
        yield party


def given(client: TestClient, **params: Any) -> list[dict[str, Any]]:
    answer = client.get("/v1/given", params=params)
    assert answer.status_code == 200, answer.text
    return list(answer.json())


def filled(party: LabelsParty) -> tuple[str, str, str]:
    """Two releases of one shop for both audiences, one charged and undrawn of another population for `other` alone."""
    shop = [party.sealed_batch(label_table(20, prefix=f"d{day}"), "shop", audiences=BOTH) for day in range(2)]
    alone = party.sealed_batch(label_table(20, prefix="o"), "private", label="visits", audiences=["other"])
    return party.release(shop[0]), party.release(shop[1], "2"), party.charge(alone, "3")


def test_who_has_what_by_population_audience_day_and_state(resting: LabelsParty) -> None:
    first, second, waits = filled(resting)
    owner, auditor = resting.client(), resting.client("auditor")
    assert [g["id"] for g in given(owner)] == [g["id"] for g in given(auditor)] != []
    assert {g["id"] for g in given(owner)} == {first, second, waits}
    assert {g["id"] for g in given(owner, audience="features-party")} == {first, second}
    assert {g["id"] for g in given(owner, audience="other")} == {first, second, waits}
    assert given(owner, audience="oth") == given(owner, audience='"') == []
    assert [g["id"] for g in given(owner, population="private")] == [waits]
    assert [g["id"] for g in given(owner, state="charged")] == [waits]
    day = given(owner)[0]["created"][:10]
    assert len(given(owner, since=day, until=day)) == 3
    assert given(owner, until="2001-01-01") == given(owner, since="2999-01-01") == []
    assert given(owner, family="answer") == []
    row = next(g for g in given(auditor) if g["id"] == second)
    assert (row["epsilon"], row["examples"], row["population_name"], row["receipts"]) == ("2", 20, "shop", [])
    assert len(row["created"]) == 10  # an auditor sees days
    one = resting.client().get("/v1/given", params={"limit": 2})
    rest = owner.get(f"/v1/given{one.links['next']['url']}").json()
    assert len(one.json()) == 2
    assert {g["id"] for g in [*one.json(), *rest]} == {first, second, waits}
    assert owner.get("/v1/given", params={"kind": "nonsense"}).status_code == 422
    for role in ("ingest", "features"):
        assert resting.client(role).get("/v1/given").status_code == 404


def test_an_audience_is_its_exact_spelling(resting: LabelsParty) -> None:
    spellings = ("Pub", "pub", 'p"b', "p%b")
    releases = {
        name: resting.charge(resting.sealed_batch(label_table(5, prefix=name), f"shop {name}", audiences=[name]))
        for name in spellings
    }
    owner = resting.client()
    for name, release in releases.items():
        assert [g["id"] for g in given(owner, audience=name)] == [release]
        batches = owner.get("/v1/batches", params={"audience": name}).json()
        assert [b["population_name"] for b in batches] == [f"shop {name}"]
    assert given(owner, audience="PUB") == []


def test_a_receipt_shows_who_has_it(tmp_path: Path) -> None:
    with pair(tmp_path) as both:
        release = both.release()
        both.pull(release)
        (row,) = given(both.labels.client("auditor"), audience="features-party")
        assert row["id"] == release
        (one,) = row["receipts"]
        assert (one["audience"], one["position"]) == ("features-party", 1)
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", one["day"])
        (told,) = [g for g in given(both.labels.client()) if g["id"] == release]
        assert told["receipts"] == row["receipts"]


def test_fetches_are_noted_by_key_to_the_day(timed: LabelsParty, clock: FakeClock) -> None:
    """Of audiences only; writing waits for nobody, and a database that takes no writes stops no fetch."""
    owner = timed.client("owner")
    shop = {"name": "shop", "label": "revenue", "domain": "0:10", "lifetime_epsilon": "4"}
    release = str(ask(owner, sealed(owner, shop))["id"])
    timed.services.worker.drain()
    fetches = timed.services.fetches

    def seen() -> list[dict[str, str]]:
        fetches.wait()
        return [f for row in given(auditor) for f in row["fetched"]]

    audience, auditor = timed.client("features"), timed.client("auditor")
    path = f"/v1/releases/{release}/manifest"
    assert timed.client("owner").get(path).status_code == 200
    assert timed.client("features", "somebody-else").get(path).status_code == 404
    assert seen() == []
    first = clock().strftime("%Y-%m-%d")
    assert audience.get(path).status_code == 200
    assert audience.get(f"/v1/releases/{release}/message").status_code == 200
    (one,) = seen()
    assert (one["audience"], one["first"], one["last"]) == ("features-party", first, first)
    clock.move(days=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(timed.services.database), "write", reads_only)
        assert audience.get(path).status_code == 200
        assert seen() == [one]
    assert audience.get(path).status_code == 200
    last = clock().strftime("%Y-%m-%d")
    assert seen() == [one | {"last": last}]
    assert timed.client("features").get(path).status_code == 200  # with another key
    assert [f["first"] for f in seen()] == [first, last]
    page = signed_in(timed.client("auditor")).get("/given").text
    assert f"{first} to {last}" in re.sub("<[^>]*>", "", page)


def reads_only(*_: Any) -> Any:
    raise Unavailable("read only")


def test_an_auditor_reads_every_list_that_shows_no_label(resting: LabelsParty) -> None:
    first, *_ = filled(resting)
    owner, auditor = resting.client(), resting.client("auditor")
    batch = resting.state(first).batch
    paths = ("populations", "populations/shop", "populations/shop/batches", "batches", f"batches/{batch}", "releases")
    more = (f"batches/{batch}/releases", "populations/shop/releases", "answers", "predictors", "webhooks")
    officer = ("populations/shop/budget", "populations/shop/erasures", "populations/shop/plan?epsilon=1&n=100")
    for path in (*paths, *more, *officer, f"batches/{batch}/calibration-allowance"):
        answers = [client.get(f"/v1/{path}") for client in (owner, auditor)]
        assert [a.status_code for a in answers] == [200, 200], (path, answers[1].text)
    assert auditor.get(f"/v1/batches/{batch}/set-aside").status_code == 404  # which ids had a record depends on labels


def test_an_auditor_is_not_told_whether_a_seal_failed(resting: LabelsParty) -> None:
    owner, auditor = resting.client(), resting.client("auditor")
    owner.post("/v1/populations", json={"name": "shop", "label": "y", "domain": "0:10", "lifetime_epsilon": "2"})
    body = {"presence": "public", "seal_at": "2999-01-01T00:00:00Z"}
    batch = owner.post("/v1/populations/shop/batches", json=body).json()["id"]
    assert owner.post(f"/v1/batches/{batch}/seal").status_code == 409  # it has no labels yet
    for path in ("batches", "populations/shop/batches"):
        (mine,), (theirs,) = (client.get(f"/v1/{path}").json() for client in (owner, auditor))
        assert mine["closed"] is not None
        assert mine["set_aside"] == 0
        hidden = ("closed", "seal_at", "schedule_problem", "set_aside")
        assert [theirs[name] for name in hidden] == [None] * 4, path


def test_batches_say_what_they_spent_and_when_their_labels_go(resting: LabelsParty) -> None:
    owner = resting.client()
    asked = {"name": "kept", "label": "y", "domain": "0:10", "lifetime_epsilon": "3", "retention_days": 30}
    owner.post("/v1/populations", json=asked)
    batch = resting.sealed_batch(label_table(20), "kept", label="y")
    filled(resting)
    resting.release(batch, "1")
    (row,) = owner.get("/v1/batches", params={"population": "kept"}).json()
    assert (row["id"], row["epsilon_spent"], row["epsilon_left"]) == (batch, "1", "2")
    assert (row["releases"], row["answers"], row["examples"]) == (1, 0, 20)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", row["purge_due"])
    assert {b["population_name"] for b in owner.get("/v1/batches", params={"audience": "other"}).json()} == {
        "shop",
        "private",
    }
    owner.post(f"/v1/batches/{batch}/purge")
    (row,) = owner.get("/v1/batches", params={"state": "purged"}).json()
    assert (row["id"], row["purge_due"]) == (batch, None)


def test_populations_by_audience(resting: LabelsParty) -> None:
    filled(resting)

    def listed(role: str = "owner", **query: str) -> list[str]:
        return [p["name"] for p in resting.client(role).get("/v1/populations", params=query).json()]

    assert sorted(listed()) == sorted(listed("auditor", audience="other")) == ["private", "shop"]
    assert listed(audience="features-party") == ["shop"]
    assert listed(audience="OTHER") == listed(audience="oth") == listed(audience="") == []
    assert resting.client().get("/v1/populations", params={"audience": "x" * 201}).json()["code"] == "invalid-request"


def test_names_stand_wherever_an_actor_is_shown(resting: LabelsParty) -> None:
    """Of the owner's program and of the officer; in no event's bytes."""
    s = resting.services
    owner, officer = resting.client(), resting.client("auditor")
    for client, name in ((owner, "Night job"), (officer, "Ada Officer")):
        _, secret = s.apikeys.create("owner" if client is owner else "auditor", name=name)
        client.headers["Authorization"] = f"Bearer {secret}"
    asked = ask(owner, sealed(owner, POPULATION))
    assert asked["requested_by_name"] == "Night job"
    done = officer.post(f"/v1/releases/{asked['id']}/approve").json()
    assert (done["requested_by_name"], done["approved_by_name"]) == ("Night job", "Ada Officer")
    assert s.pipeline.run(asked["id"])
    (row,) = given(officer)
    assert (row["requested_by_name"], row["approved_by_name"]) == ("Night job", "Ada Officer")
    (event,) = officer.get("/v1/audit/events", params={"kind": "release-approved"}).json()
    assert event["actor_name"] == "Ada Officer"
    assert "Night job (apikey:" in event["sentence"]
    assert event["sentence"].endswith(f"by Ada Officer ({event['actor']}).")
    page = officer.get(f"/v1/releases/{asked['id']}/statement").text
    assert "Asked for by Night job (apikey:" in page
    assert "approved by Ada Officer (apikey:" in page
    theirs = resting.client("features").get(f"/v1/releases/{asked['id']}")
    assert "Night job" not in theirs.text
    assert "Ada" not in theirs.text
    assert b"Night job" not in s.database.read("export", lambda c: s.audit.export(c, s.key))


@pytest.mark.parametrize("name", ["", " x", "x" * 41, "a\u200bb", "a\nb"])
def test_a_name_that_could_mislead_is_refused(resting: LabelsParty, name: str) -> None:
    with pytest.raises(InvalidInput, match="A name is 1 to 40"):
        resting.services.apikeys.create("owner", name=name)


def test_who_is_behind_an_actor() -> None:
    names = {"apikey:1": "Night job"}
    assert [name_of(a, names) for a in ("apikey:1", "apikey:2", "command line: Ada", "worker", None)] == [
        "Night job",
        None,
        "Ada",
        None,
        None,
    ]
    assert name_of("schedule of apikey:1", names) == "Night job"
    assert called("schedule of apikey:1", names) == "Night job (schedule of apikey:1)"
    assert called("apikey:2", names) == "apikey:2"


@pytest.mark.parametrize("day", ["2026-13-01", "20261101", "2026-11-01T00:00:00Z", "yesterday", ""])
def test_what_is_no_day_is_said(day: str) -> None:
    with pytest.raises(ValidationError, match=r"written as YYYY-MM-DD|valid date"):
        GivenFilter.model_validate({"since": day})


def test_the_commands(run: Run, home: Path) -> None:
    with LabelsParty(home, worker=False) as party:
        first, second, waits = filled(party)
        batch = party.state(first).batch
    assert {r["id"] for r in run("releases", "--json").json} == {first, second, waits}
    assert [r["id"] for r in run("releases", "--population", "private", "--json").json] == [waits]
    assert len(run("releases", "--limit", "2", "--json").json) == 2
    assert run("releases", "--until", "2001-01-01", "--json").json == []
    assert "private" in run("releases", "--audience", "other").out
    found = {b["id"]: b for b in run("batches", "--json").json}
    assert (len(found), found[batch]["epsilon_spent"]) == (3, "1")
    assert "ε left" in run("batches", "--state", "sealed").out
    assert "No batch fits" in run("batches", "--state", "open").out
    assert [p["name"] for p in run("population", "list", "--audience", "features-party", "--json").json] == ["shop"]
    assert "private" in run("population", "list").out
    assert "No population fits" in run("population", "list", "--audience", "nobody").out
    refused(run("batches", "--state", "nonsense"), 2, "--state must be 'open', 'sealed' or 'purged'")
    refused(run("releases", "--state", "nonsense"), 2, "--state must be 'accepted'")
    refused(run("releases", "--since", "yesterday"), 2, "--since is a day, written as YYYY-MM-DD")
    refused(run("answers", "--kind", "nonsense"), 2, "nonsense")
    made = run("apikey", "create", "--role", "owner", "--name", "Night job", "--json").json
    assert made["name"] == "Night job"
    assert "Night job" in run("apikey", "list").out
