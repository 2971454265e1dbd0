"""Tokens of an OIDC issuer as bearer tokens: whom they stand for, and that every false one is refused."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA256
from fastapi.testclient import TestClient

from label_dp.errors import InvalidSettings
from tests.integration.test_four_eyes import POPULATION, ask, sealed
from tests.support.features_api import running
from tests.support.issuer import AUDIENCE, Issuer, another, signed, spelled
from tests.support.labels import FakeClock, LabelsParty
from tests.support.messages import Sender

CLOCK = FakeClock()
NOW = int(CLOCK().timestamp())


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with Issuer(NOW) as found:
        yield found


@pytest.fixture
def party(tmp_path: Path, database_url: str, issuer: Issuer) -> Iterator[LabelsParty]:
    settings = issuer.settings(database_url=database_url, worker=False)
    with LabelsParty(tmp_path / "home", clock=FakeClock(), **settings) as found:
        yield found


@pytest.fixture
def passing(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Lets time pass on the monotonic clock of the issuer's keys."""
    now = [1000.0]
    monkeypatch.setattr("label_dp.http.oidc.monotonic", lambda: now[0])
    return lambda seconds: now.__setitem__(0, now[0] + seconds)


def by(party: LabelsParty, token: str) -> TestClient:
    client = party.client("ingest")
    client.headers["Authorization"] = f"Bearer {token}"
    return client


def status(party: LabelsParty, token: str) -> int:
    """Of a call that an owner may make; a refusal says nothing about its reason."""
    answer = by(party, token).get("/v1/populations")
    if answer.status_code == 401:
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["detail"] == "The issuer's token is not accepted here. Get a new one; the log says why."
    return answer.status_code


def test_a_token_is_a_caller_whom_events_name_by_issuer_and_subject(party: LabelsParty, issuer: Issuer) -> None:
    ada = by(party, issuer.token("ada", name="Ada Lovelace"))
    assert ada.post("/v1/populations", json=POPULATION).status_code == 201
    event = ada.get("/v1/audit/events").json()[-1]
    assert (event["actor"], event["actor_name"]) == (f"oidc:{issuer.url}#ada", "Ada Lovelace")
    stored = party.services.database.read("events", party.services.audit.events)
    assert "Lovelace" not in str([*stored])
    # the issuer is asked once, however many calls there are
    assert [r.rpartition("/")[2] for r in issuer.requests] == ["openid-configuration", "keys"]


@pytest.mark.parametrize("kind", ["RSA", "EC", "OKP"])
def test_keys_of_the_usual_kinds_sign_tokens(party: LabelsParty, issuer: Issuer, kind: str) -> None:
    issuer.key = another(kind)
    issuer.listed = [issuer.key]
    assert status(party, issuer.token()) == 200


def test_every_attack_on_tokens_is_refused(party: LabelsParty, issuer: Issuer) -> None:
    """And the valid one among them is not, so that nothing else refuses them."""
    key, claims, late = issuer.key, issuer.claims(), {"exp": NOW + 10**6}
    public = key.as_pem(private=False)
    head = {"alg": "HS256", "kid": "one"}
    unsigned = spelled(head, claims).rpartition(".")[0]
    confused = base64.urlsafe_b64encode(hmac.digest(public, unsigned.encode(), hashlib.sha256)).rstrip(b"=").decode()
    alien, stolen = another(kid="other"), another()
    embedded = alien.as_dict(private=False)
    valid = issuer.token()
    head_part, _, tail = valid.split(".")
    swapped = base64.urlsafe_b64encode(json.dumps(claims | {"sub": "eve"}).encode()).rstrip(b"=").decode()
    critical = spelled({"alg": "RS256", "kid": "one", "crit": ["urn:unknown"], "urn:unknown": 1}, claims).rstrip(".")
    signature = key.private_key.sign(critical.encode(), PKCS1v15(), SHA256())
    attacks = {
        "alg none": spelled({"alg": "none", "kid": "one"}, claims),
        "alg None": spelled({"alg": "None", "kid": "one"}, claims),
        "no alg": spelled({"kid": "one"}, claims),
        "public key as a secret": f"{unsigned}.{confused}",
        "no signature": valid.rpartition(".")[0] + ".",
        "claims swapped": f"{head_part}.{swapped}.{tail}",
        "other key under the same kid": signed(claims, stolen),
        "unknown kid": signed(claims, alien),
        "kid no text": spelled({"alg": "RS256", "kid": 7}, claims, b"x"),
        "kid a path": spelled({"alg": "RS256", "kid": "../../keys/one"}, claims, b"x"),
        "key in the header": signed(claims, alien, jwk=embedded),
        "jku": signed(claims, alien, jku=f"{issuer.url}/evil"),
        "x5u": signed(claims, alien, x5u=f"{issuer.url}/evil"),
        "critical extension": f"{critical}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}",
        "wrong audience": issuer.token(aud="https://features.example"),
        "audience a prefix": issuer.token(aud=AUDIENCE + "/v1"),
        "other issuer": issuer.token(iss="https://evil.example"),
        "list of issuers": issuer.token(iss=[issuer.url]),
        "expired": issuer.token(iat=NOW - 600, exp=NOW - 61),
        "not yet valid": issuer.token(nbf=NOW + 61),
        "of the future": issuer.token(iat=NOW + 61, **late),
        "endless": issuer.token(exp=float("inf")),
        "no number": issuer.token(exp=float("nan")),
        "no role": issuer.token(role=None),
        "unknown role": issuer.token(role="root"),
        "two roles": issuer.token(label_dp_role=["owner", "auditor"]),
        "subject empty": issuer.token(""),
        "subject with a line end": issuer.token("ada\nowner"),
        "subject too long": issuer.token("a" * 256),
        "role without its audience": issuer.token(role="features"),
        "too long": issuer.token(more="x" * 20_000),
        "no JSON": "e30.e30.e30",
        "dots only": "..",
    } | {f"without {name}": issuer.token(**{name: None}) for name in ("iss", "aud", "exp", "iat")}
    attacks["without sub"] = signed({k: v for k, v in claims.items() if k != "sub"}, key)
    assert status(party, valid) == 200
    assert {name: status(party, token) for name, token in attacks.items()} == dict.fromkeys(attacks, 401)
    assert not [r for r in issuer.requests if "evil" in r]


def test_clocks_may_differ_by_a_minute(party: LabelsParty, issuer: Issuer) -> None:
    assert status(party, issuer.token(exp=NOW - 59)) == 200
    assert status(party, issuer.token(nbf=NOW + 59, iat=NOW + 59)) == 200


def test_false_tokens_cost_the_issuer_one_request_a_minute(
    party: LabelsParty, issuer: Issuer, passing: Callable[[float], None]
) -> None:
    assert status(party, issuer.token()) == 200
    for number in range(5):
        passing(5)
        assert status(party, signed(issuer.claims(), another(kid=f"made-up-{number}"))) == 401
    assert len(issuer.requests) == 2
    issuer.key = another(kid="two")  # a new key of the issuer is learnt within the minute
    issuer.listed.append(issuer.key)
    assert status(party, issuer.token()) == 401
    passing(60)
    assert status(party, issuer.token()) == 200
    assert len(issuer.requests) == 4


def test_a_key_that_the_issuer_withdrew_ends(
    party: LabelsParty, issuer: Issuer, passing: Callable[[float], None]
) -> None:
    before = issuer.token()
    assert status(party, before) == 200
    issuer.listed = [another(kid="two")]
    passing(601)
    assert status(party, before) == 401


def test_without_the_issuer_tokens_are_refused_and_keys_go_on(
    party: LabelsParty, issuer: Issuer, passing: Callable[[float], None]
) -> None:
    owner, token = party.client("owner"), issuer.token()
    issuer.down = True
    assert status(party, token) == 401
    assert owner.get("/v1/populations").status_code == 200
    issuer.down = False
    assert status(party, token) == 401  # not asked again within the minute
    passing(60)
    assert status(party, token) == 200
    issuer.down = True
    passing(3000)
    assert status(party, token) == 200  # keys are trusted for an hour
    passing(601)
    assert status(party, token) == 401
    assert owner.get("/v1/populations").status_code == 200


@pytest.mark.parametrize("listing", [["text", None, 7], "text", {"kid": "one"}, None])
def test_keys_of_an_issuer_that_are_none_refuse_tokens(
    party: LabelsParty, issuer: Issuer, monkeypatch: pytest.MonkeyPatch, listing: Any
) -> None:
    token, get = issuer.token(), issuer.get
    monkeypatch.setattr(issuer, "get", lambda path: {"keys": listing} if path.endswith("/keys") else get(path))
    assert status(party, token) == 401


def test_a_discovery_document_of_another_issuer_is_refused(party: LabelsParty, issuer: Issuer) -> None:
    token, issuer.named = issuer.token(), "https://evil.example"
    assert status(party, token) == 401


def test_roles_follow_the_token_and_a_subject_is_revoked_here(party: LabelsParty, issuer: Issuer) -> None:
    assert status(party, issuer.token(role="owner")) == 200
    assert status(party, issuer.token(role="ingest")) == 404  # as for any caller of that role
    party.services.apikeys.wait()  # the day of use is noted by a thread
    (row,) = [k for k in party.services.apikeys.list() if str(k["id"]).startswith("oidc-")]
    assert (row["role"], row["last_used"]) == ("ingest", "2030-01-01")
    party.services.apikeys.revoke(str(row["id"]))
    answer = by(party, issuer.token(role="owner")).get("/v1/populations")
    assert answer.status_code == 401


def test_a_claim_maps_to_roles_and_to_an_audience(tmp_path: Path, issuer: Issuer) -> None:
    robot = "system:serviceaccount:ads:loader"
    roles = json.dumps({robot: "owner", "system:serviceaccount:ads:reader": "features:publisher"})
    settings = issuer.settings(oidc_role_claim="sub", oidc_roles=roles, worker=False)
    with LabelsParty(tmp_path / "home", clock=FakeClock(), **settings) as party:
        assert status(party, issuer.token(robot, role=None)) == 200
        assert status(party, issuer.token("system:serviceaccount:ads:other", role="owner")) == 401
        client = by(party, issuer.token("system:serviceaccount:ads:reader", label_dp_audience="somebody-else"))
        assert client.get("/v1/releases").status_code == 200
        principal = party.services.apikeys.authenticate(issuer.token("system:serviceaccount:ads:reader"))
        assert (principal.role, principal.audience) == ("features", "publisher")


def test_a_path_names_a_claim_inside_another(tmp_path: Path, issuer: Issuer) -> None:
    settings = issuer.settings(oidc_role_claim="realm_access.roles", oidc_roles='{"dp": "owner"}', worker=False)
    with LabelsParty(tmp_path / "home", clock=FakeClock(), **settings) as party:
        assert status(party, issuer.token(realm_access={"roles": ["offline_access", "dp"]})) == 200
        assert status(party, issuer.token(realm_access=["dp"])) == 401
        assert status(party, issuer.token(realm_access={"roles": [["dp"], {"dp": 1}, 1]})) == 401


@pytest.mark.parametrize(
    "settings",
    [
        {"oidc_issuer": "http://sso.example"},
        {"oidc_issuer": "https://sso.example/?x=1"},
        {"oidc_audience": ""},
        {"oidc_roles": "{}"},
        {"oidc_roles": '["owner"]'},
        {"oidc_roles": '{"group": "root"}'},
    ],
)
def test_settings_that_would_be_unsafe_are_refused(tmp_path: Path, settings: dict[str, str]) -> None:
    usual = {"oidc_issuer": "https://sso.example", "oidc_audience": AUDIENCE}
    with pytest.raises(InvalidSettings):
        LabelsParty(tmp_path / "home", **(usual | settings))


def test_people_need_an_issuer(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match="LABELS_PARTY_OIDC_ISSUER"):
        LabelsParty(tmp_path / "home", four_eyes="people")


def test_four_eyes_of_people_count_subjects_of_the_issuer(tmp_path: Path, issuer: Issuer) -> None:
    settings = issuer.settings(four_eyes="people", worker=False)
    with LabelsParty(tmp_path / "home", clock=FakeClock(), **settings) as party:
        key, ada, eve = party.client("owner"), by(party, issuer.token("ada")), by(party, issuer.token("eve"))
        officer = party.client("approver")
        batch = sealed(key)
        by_key, by_ada = ask(key, sealed(key, prefix="d"))["id"], ask(ada, batch)["id"]

        def refused(client: TestClient, release: str) -> Any:
            answer = client.post(f"/v1/releases/{release}/approve")
            assert (answer.status_code, answer.json()["code"]) == (403, "second-person-needed")

        refused(officer, by_key)
        refused(eve, by_key)
        refused(officer, by_ada)
        refused(ada, by_ada)
        refused(by(party, issuer.token("ADA")), by_ada)
        assert party.spent(batch) == "0"
        approved = eve.post(f"/v1/releases/{by_ada}/approve")
        assert approved.status_code == 200
        assert approved.json()["approved_by"] == f"oidc:{issuer.url}#eve"
        assert key.post(f"/v1/releases/{by_ada}/approve").status_code == 409
        assert officer.post(f"/v1/releases/{by_key}/decline").status_code == 200


def test_a_features_party_takes_tokens_too(tmp_path: Path) -> None:
    with Issuer(int(time.time())) as issuer, running(tmp_path, Sender(), **issuer.settings()) as api:
        client = api.client("auditor")
        client.headers["Authorization"] = f"Bearer {issuer.token('tom', 'trainer')}"
        assert client.get("/v1/models").status_code == 200
        client.headers["Authorization"] = f"Bearer {issuer.token('tom', 'owner')}"
        assert client.get("/v1/models").status_code == 401
