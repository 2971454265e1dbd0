"""`GET /v1/releases`: what a receiver learns of releases, by day, in pages; of others' nothing. And `pull --since`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.features_cli import Shell, key_file
from tests.support.labels import LabelsParty, label_table
from tests.support.serving import serving

pytestmark = pytest.mark.extended


def published(party: LabelsParty) -> dict[str, list[str]]:
    """Four releases: three of a shop for both publishers, one for the other alone."""
    both, other = ["features-party", "other"], ["other"]
    found: dict[str, list[str]] = {"both": [], "other": []}
    for day in range(3):
        table = label_table(30, prefix=f"day{day}", seed=day)
        batch = party.sealed_batch(table, "shop", label="revenue", audiences=both)
        found["both"].append(party.release(batch, "1"))
    batch = party.sealed_batch(label_table(30, prefix="o"), "private", label="visits", audiences=other)
    found["other"].append(party.release(batch, "2"))
    return found


def test_a_receiver_sees_its_own_published_releases(party_on: LabelsParty) -> None:
    party = party_on
    releases = published(party)
    ours, other = party.client("features"), party.client("features", "other")
    stranger, owner = party.client("features", "nobody"), party.client("owner")

    def ids(client, **params):  # type: ignore[no-untyped-def]  # a test shorthand
        return [r["id"] for r in client.get("/v1/releases", params=params).json()]

    assert sorted(ids(ours)) == sorted(releases["both"])
    assert sorted(ids(other)) == sorted(ids(owner)) == sorted(releases["both"] + releases["other"])
    assert ids(stranger) == []
    assert sorted(ids(ours, population="shop")) == sorted(releases["both"])
    assert ids(ours, population="private") == ids(ours, population="no such thing") == []
    assert ids(ours, since="2999-01-01") == []
    (entry, *_) = ours.get("/v1/releases").json()
    assert len(entry["published"]) == 10  # the day, not the second of the draw
    assert entry["epsilon"] == "1"
    manifest = ours.get(f"/v1/releases/{entry['id']}").json()["manifest_sha256"]
    assert entry["manifest_sha256"] == manifest


def test_what_is_not_published_does_not_show(tmp_path: Path) -> None:
    with LabelsParty(tmp_path / "labels", worker=False) as party:
        ours = party.client("features")
        release = party.charge(party.sealed_batch(label_table(30)))
        assert ours.get("/v1/releases").json() == []
        assert ours.get("/v1/releases", params={"cursor": release}).status_code == 404
        assert party.services.pipeline.run(release)
        assert [r["id"] for r in ours.get("/v1/releases").json()] == [release]


def test_pages(party_on: LabelsParty) -> None:
    party = party_on
    releases = published(party)
    ours = party.client("features")
    first = ours.get("/v1/releases", params={"limit": 2})
    second = ours.get(f"/v1/releases{first.links['next']['url']}")
    assert sorted(r["id"] for r in first.json() + second.json()) == sorted(releases["both"])
    assert "next" not in second.links
    hidden = ours.get("/v1/releases", params={"cursor": releases["other"][0]})
    nothing = ours.get("/v1/releases", params={"cursor": "rel_nothing"})
    assert hidden.status_code == nothing.status_code == 404
    assert hidden.json()["code"] == nothing.json()["code"] == "not-found"
    strange = hidden.json()["detail"].replace(releases["other"][0], "X"), nothing.json()["detail"]
    assert strange[0] == strange[1].replace("rel_nothing", "X")


@pytest.mark.parametrize("params", [{"since": "yesterday"}, {"limit": 0}, {"limit": 5000}, {"cursor": "x" * 201}])
def test_bad_questions(party: LabelsParty, params: dict[str, str | int]) -> None:
    assert party.client("features").get("/v1/releases", params=params).status_code in (400, 422)
    assert party.client("ingest").get("/v1/releases").status_code == 404


def test_pull_since_by_command(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    with LabelsParty(tmp_path / "labels") as party:
        releases = published(party)
        public = party.services.home.public_key
        key = party.services.apikeys.create("features", "features-party")[1]
        with serving(party.client().app) as url:
            ask = ("pull", "--url", url, "--since", "2020-01-01", "--out", "in", "--labels-key", public)
            said = shell.refused(*ask, code=2)
            assert "FEATURES_PARTY_LABELS_API_KEY" in said
            assert "--api-key-file" in said
            wrong = key_file(tmp_path / "wrong.key", "wrong")
            assert "FEATURES_PARTY_LABELS_API_KEY" in shell.refused(*ask, "--api-key-file", wrong, code=1)
            shell.env["FEATURES_PARTY_LABELS_API_KEY"] = key
            got = shell.json(*ask)
            assert sorted(m["release"] for m in got["messages"]) == sorted(releases["both"])
            again = shell.json(*ask)
            assert [m["fresh"] for m in again["messages"]] == [False] * 3
            assert releases["both"][0] in shell.run(*ask).stdout
            late = shell.refused(*ask, "--wait", "1", code=1)
            assert "Nothing new" in late
            one = ("pull", "--url", url, "--out", "one.parquet", "--labels-key", public)
            assert shell.json(*one, "--release", releases["both"][0], "--wait")["fresh"] is True
            assert "Give --release" in shell.refused(*one, code=2)
            assert "no release" in shell.refused(*one, "--release", releases["other"][0], "--wait", "1", code=1)
    named = {p.name for p in (tmp_path / "in").glob("*.parquet") if "prior" not in p.name}
    assert named == {f"{r}.parquet" for r in releases["both"]}
