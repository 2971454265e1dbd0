"""Sign-in to the pages at an OIDC issuer: one code, one browser, one session; every mixed-up return opens nothing."""

from __future__ import annotations

import base64
import hashlib
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from fastapi.testclient import TestClient

from label_dp.errors import InvalidSettings
from label_dp.http.oidc import ClaimRules
from label_dp.http.oidc import Issuer as OidcIssuer
from label_dp.pages.signin import MOST_AT_ONCE
from tests.support.features_api import running
from tests.support.issuer import AUDIENCE, CLIENT, RETURN, Issuer, another
from tests.support.labels import FakeClock, LabelsParty
from tests.support.messages import Sender

NOW = int(FakeClock()().timestamp())
PAGES = {"oidc_client_id": CLIENT, "oidc_redirect": RETURN}


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with Issuer(NOW) as found:
        yield found


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def party(tmp_path: Path, issuer: Issuer, clock: FakeClock) -> Iterator[LabelsParty]:
    with LabelsParty(tmp_path / "home", clock=clock, worker=False, **issuer.settings(**PAGES)) as found:
        yield found


def browser(party: LabelsParty) -> TestClient:
    client = party.client("owner")
    del client.headers["Authorization"]
    return client


def begin(client: TestClient, page: str = "") -> str:
    """Where the issuer is asked to sign in."""
    answer = client.get(f"/sign-in/issuer?next={page}", follow_redirects=False)
    assert answer.status_code == 303
    return answer.headers["location"]


def back(client: TestClient, address: str) -> httpx.Response:
    """The browser follows the issuer's redirect to us."""
    parts = urlsplit(address)
    return client.get(f"{parts.path}?{parts.query}", follow_redirects=False)


def bound(client: TestClient) -> str:
    """The cookie of the only sign-in that the browser began."""
    (value,) = [value for name, value in client.cookies.items() if "_oidc_" in name]
    return value


def bind(client: TestClient, value: str) -> None:
    """Give the browser the cookie of a sign-in, under the name of its state."""
    state = value.partition(".")[0]
    client.cookies.set(f"lp_session_oidc_{hashlib.sha256(state.encode()).hexdigest()[:12] if state else ''}", value)


def opens_nothing(client: TestClient, address: str, advice: str = "") -> None:
    answer = back(client, address)
    assert answer.status_code == 401
    assert f"This sign-in opens nothing here. {advice}" in answer.text
    assert "lp_session=" not in answer.headers.get("set-cookie", "")
    assert client.get("/overview", follow_redirects=False).status_code == 303


def test_a_person_signs_in_and_is_named(party: LabelsParty, issuer: Issuer) -> None:
    client = browser(party)
    assert 'href="./sign-in/issuer?next="' in client.get("/sign-in").text
    issuer.changes = {"name": "Ada Lovelace"}
    asked = client.get("/sign-in/issuer?next=/given", follow_redirects=False)
    bound = asked.headers["set-cookie"].lower()
    assert all(word in bound for word in ("lp_session_oidc_", "httponly", "samesite=lax", "max-age=600"))
    answer = back(client, issuer.authorize(asked.headers["location"]))
    assert answer.status_code == 200
    assert 'content="0; url=../given"' in answer.text
    assert "samesite=strict" in answer.headers["set-cookie"].lower()
    page = client.get("/overview", follow_redirects=False)
    assert page.status_code == 200
    assert "Ada Lovelace" in page.text
    assert not any("oidc" in name for name in client.cookies)


def test_a_session_ends_with_its_token_and_with_the_subject(
    party: LabelsParty, issuer: Issuer, clock: FakeClock
) -> None:
    client = browser(party)
    back(client, issuer.authorize(begin(client)))
    clock.move(seconds=299)
    assert client.get("/overview", follow_redirects=False).status_code == 200
    clock.move(seconds=1)
    assert client.get("/overview", follow_redirects=False).headers["location"] == "./sign-in?next=/overview&done=ended"
    assert "Your session has ended." in client.get("/overview").text
    issuer.now += 300
    issuer.changes = {"exp": issuer.now + 10**7}
    back(client, issuer.authorize(begin(client)))
    assert client.get("/overview", follow_redirects=False).status_code == 200
    (row,) = [k for k in party.services.apikeys.list() if str(k["id"]).startswith("oidc-")]
    party.services.apikeys.revoke(str(row["id"]))
    assert client.get("/overview", follow_redirects=False).status_code == 303
    opens_nothing(client, issuer.authorize(begin(client)))


def test_a_session_ends_after_twelve_hours_at_most(party: LabelsParty, issuer: Issuer, clock: FakeClock) -> None:
    client, issuer.changes = browser(party), {"exp": NOW + 10**7}
    back(client, issuer.authorize(begin(client)))
    clock.move(hours=12)
    assert client.get("/overview", follow_redirects=False).status_code == 303


def test_a_code_is_used_once_and_in_the_browser_that_asked(party: LabelsParty, issuer: Issuer) -> None:
    client, other = browser(party), browser(party)
    address = issuer.authorize(begin(client))
    opens_nothing(other, address)  # it began none
    begin(other)
    opens_nothing(other, address)  # it began another one
    cookie = bound(client)
    assert back(client, address).status_code == 200
    client.cookies.clear()
    opens_nothing(client, address)  # the cookie is used up
    bind(client, cookie)
    opens_nothing(client, address)  # and the code, where a thief kept the cookie


@pytest.mark.parametrize(
    "change",
    [
        {"nonce": "another"},
        {"nonce": None},
        {"nonce": 7},
        {"aud": AUDIENCE},
        {"aud": "another client"},
        {"azp": "another client"},
        {"iss": "https://evil.example"},
        {"exp": NOW - 61},
        {"label_dp_role": None},
    ],
    ids=str,
)
def test_a_token_that_is_not_of_this_sign_in_opens_nothing(
    party: LabelsParty, issuer: Issuer, change: dict[str, Any]
) -> None:
    client, issuer.changes = browser(party), change
    opens_nothing(client, issuer.authorize(begin(client)))


def test_mixed_up_answers_open_nothing(party: LabelsParty, issuer: Issuer) -> None:
    client = browser(party)
    address = issuer.authorize(begin(client))
    state = address.partition("state=")[2].partition("&")[0]
    for query in (
        f"code=x&state={state}&iss=https://evil.example",
        f"state={state}",
        f"error=access_denied&state={state}",
        "code=x&state=",
        "code=x&state=é",
        "code=x",
        "",
    ):
        begin(client)
        bind(client, f"{state}.n.v.")
        opens_nothing(client, f"{RETURN}?{query}")
        client.cookies.clear()
    bind(client, "...")
    opens_nothing(client, f"{RETURN}?code=x&state=")
    client.cookies.clear()
    begin(client)
    opens_nothing(client, address)  # of the sign-in before


def test_two_tabs_sign_in_one_after_the_other(party: LabelsParty, issuer: Issuer) -> None:
    client = browser(party)
    first, second = (issuer.authorize(begin(client, page)) for page in ("/given", "/approvals"))
    assert "url=../given" in back(client, first).text
    assert "url=../approvals" in back(client, second).text
    for _ in range(9):
        begin(client)
    assert len([name for name in client.cookies if "_oidc_" in name]) == MOST_AT_ONCE


def test_a_refusal_says_what_the_person_can_do(
    party: LabelsParty, issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    """Each reason has its sentence, and a line of the log that names what an administrator sets."""
    client = browser(party)

    def refused(advice: str, logged: str, end: str | None = None) -> None:
        address = issuer.authorize(begin(client))
        opens_nothing(client, address if end is None else f"{address.partition('?')[0]}?{end}", advice)
        assert logged in caplog.text

    issuer.changes = {"label_dp_role": None}
    refused("Your account has no role", "no role: claim label_dp_role")
    issuer.changes = {"label_dp_role": ["owner", "auditor"]}
    refused("Your account has several roles", "several roles: claim label_dp_role")
    issuer.changes = {"aud": "another"}
    refused("Start it again", "invalid token: claim aud")
    issuer.refusal = {"error": "invalid_client", "error_description": "do not log this"}
    refused("Your organisation&#39;s sign-in refused this service", "it answered 401 invalid_client")
    issuer.refusal = {"error": "<do not log this>"}
    refused("Your organisation&#39;s sign-in refused this service", "refused by the issuer: it answered 401)")
    state = parse_qs(urlsplit(begin(client)).query)["state"][0]
    opens_nothing(
        client, f"{RETURN}?error=access_denied&state={state}", "Your organisation&#39;s sign-in was cancelled"
    )
    assert "refused by the issuer: access_denied" in caplog.text
    assert "do not log" not in caplog.text


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"down": True}, "it answered 503"),
        ({"named": "https://sso.example/realms/other"}, "names another issuer, 'https://sso.example/realms/other'"),
        ({"url": "http://127.0.0.1:1/realms/ads"}, "no answer (ConnectError)"),
    ],
    ids=str,
)
def test_an_issuer_that_cannot_be_used_is_logged_at_the_start(
    issuer: Issuer, change: dict[str, Any], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    vars(issuer).update(change)
    found = OidcIssuer(issuer.url, ClaimRules(AUDIENCE, "label_dp_role", {}), FakeClock())
    found.check()
    (record,) = caplog.records
    assert (record.levelno, record.name) == (logging.WARNING, "label_dp.issuer")
    assert f"the issuer {issuer.url} cannot be used: " in record.message
    assert why in record.message
    vars(issuer).update(down=False, named=issuer.url)
    if "url" not in change:
        assert found.published() is not None  # nobody waits a minute for what the start asked


def test_a_foreign_key_signs_nobody_in(party: LabelsParty, issuer: Issuer) -> None:
    client = browser(party)
    address = issuer.authorize(begin(client))
    issuer.key = another()
    opens_nothing(client, address)


@pytest.mark.parametrize("page", ["//evil.example", "https://evil.example", "/\\evil.example", "/..//evil.example"])
def test_nobody_is_led_elsewhere(party: LabelsParty, issuer: Issuer, page: str) -> None:
    client = browser(party)
    answer = back(client, issuer.authorize(begin(client, page)))
    assert answer.status_code == 200
    assert "evil" not in answer.text


def test_a_made_up_cookie_leads_nobody_elsewhere(party: LabelsParty, issuer: Issuer) -> None:
    client = browser(party)
    address = issuer.authorize(begin(client))
    state, nonce, verifier, _ = bound(client).split(".")
    client.cookies.clear()
    page = base64.urlsafe_b64encode(b"//evil.example").decode().rstrip("=")
    bind(client, f"{state}.{nonce}.{verifier}.{page}")
    answer = back(client, address)
    assert answer.status_code == 200
    assert "evil" not in answer.text


def test_without_the_issuer_keys_open_the_pages(party: LabelsParty, issuer: Issuer) -> None:
    issuer.down = True
    client = browser(party)
    answer = client.get("/sign-in/issuer", follow_redirects=False)
    assert answer.status_code == 503
    assert "sign in with an API key" in answer.text
    key = party.services.apikeys.create("owner")[1]
    assert client.post("/sign-in", data={"key": key}, follow_redirects=False).status_code == 303


def test_pages_without_an_issuer_offer_none(tmp_path: Path) -> None:
    with LabelsParty(tmp_path / "home", worker=False) as party:
        client = browser(party)
        assert "issuer" not in client.get("/sign-in").text
        assert client.get("/sign-in/issuer").status_code == 404
        assert client.get("/sign-in/return?code=x&state=y").status_code == 404


def test_codes_cost_the_issuer_so_many_calls_a_minute(party: LabelsParty, issuer: Issuer) -> None:
    client, answers = browser(party), list[int]()
    begin(client)
    for _ in range(65):
        client.cookies.clear()
        bind(client, "s.n.v.")
        answers.append(back(client, f"{RETURN}?code=x&state=s").status_code)
    assert answers[0] == 401
    assert answers[-1] == 503
    assert sum(r.endswith("/token") for r in issuer.requests) <= 62


@pytest.mark.parametrize(
    "settings",
    [
        {"oidc_redirect": "http://labels.example/sign-in/return"},
        {"oidc_redirect": "https://labels.example/sign-in"},
        {"oidc_client_id": AUDIENCE},
        {"oidc_issuer": ""},
        {"oidc_issuer": "https://sso.example/?x=1"},
    ],
)
def test_settings_that_would_be_unsafe_are_refused(tmp_path: Path, settings: dict[str, str]) -> None:
    usual = {"oidc_issuer": "https://sso.example", "oidc_audience": AUDIENCE} | PAGES
    with pytest.raises(InvalidSettings, match=next(iter(settings)).upper()):
        LabelsParty(tmp_path / "home", **(usual | settings))


def test_a_features_party_signs_people_in_too(tmp_path: Path) -> None:
    with Issuer(int(time.time())) as issuer, running(tmp_path, Sender(), **issuer.settings(**PAGES)) as api:
        client = api.client("auditor")
        del client.headers["Authorization"]
        answer = back(client, issuer.authorize(begin(client), "tom", "trainer"))
        assert answer.status_code == 200
        assert client.get("/models", follow_redirects=False).status_code == 200
