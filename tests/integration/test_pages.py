"""Sessions, forms and headers of the pages, on both engines; who sees which page of the labels party."""

from __future__ import annotations

import re
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from label_dp.audit.events import OF_LABELS_PARTY
from label_dp.pages import verifier
from label_dp.pages.site import POLICY
from label_dp.store.sessions import HOURS, MOST
from labels_party.storage.tables import sessions
from tests.integration.test_four_eyes import ask, sealed
from tests.support.labels import FakeClock, LabelsParty
from tests.support.labels_api import published
from tests.support.pages import Looker, signed_in

OFFICER, AUDIENCE = {"owner", "auditor"}, {"features"}
EVERYBODY = {"owner", "ingest", "features", "auditor"}
PAGES = {
    "/overview": EVERYBODY,
    "/releases": AUDIENCE,
    "/releases/{release}": OFFICER | AUDIENCE,
    "/releases/{release}/statement": OFFICER | AUDIENCE,
    "/populations/{population}": OFFICER,
    "/batches/{batch}": OFFICER,
    "/given": OFFICER,
    "/approvals": OFFICER,
    "/erasures": OFFICER,
    "/plan": OFFICER,
    "/new": {"owner"},
    "/new/{population}": {"owner"},
    "/batches/{batch}/release": {"owner"},
    "/audit": OFFICER,
    "/audit/export": OFFICER,
}
CHANGES = {
    "/approvals/{release}/approve": OFFICER,
    "/approvals/{release}/decline": OFFICER,
    "/releases/{release}/cancel": {"owner"},
    "/erasures": {"owner"},
    "/new": {"owner"},
    "/new/{population}": {"owner"},
    "/batches/{batch}/release": {"owner"},
    "/batches/{batch}/discard": {"owner"},
    "/audit/verify": OFFICER,
    "/audit/compare": OFFICER,
}
HOSTILE = '"><script>alert(1)</script>'


def rows(party: LabelsParty) -> list[Any]:
    return list(party.services.database.read("sessions", lambda c: c.execute(sa.select(sessions)).all()))


def test_a_key_becomes_a_session_that_ends_with_its_hours(timed: LabelsParty, clock: FakeClock) -> None:
    person = Looker(timed.client("auditor"))
    assert person.get("/overview").headers["location"] == "../".removesuffix("../") + "./sign-in?next=/overview"
    answer = person.sign_in(next="/given")
    assert (answer.status_code, answer.headers["location"]) == (303, "./given")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert person.key not in cookie
    assert person.key not in str(rows(timed))
    assert person.get("/given").status_code == 200
    clock.move(hours=HOURS, seconds=1)
    assert person.get("/given").status_code == 303


def test_a_cookie_is_secure_where_the_page_is(timed: LabelsParty) -> None:
    person = Looker(timed.client("auditor"))
    assert "secure" not in person.sign_in().headers["set-cookie"].lower()
    person.client.base_url = "https://testserver"
    assert "secure" in person.sign_in().headers["set-cookie"].lower()


def test_a_revoked_key_ends_its_sessions_at_once(timed: LabelsParty) -> None:
    person = signed_in(timed.client("owner"))
    assert person.get("/overview").status_code == 200
    (row,) = rows(timed)
    timed.services.apikeys.revoke(row.key_id)
    assert person.get("/overview").status_code == 303


def test_signing_out_ends_this_session_alone(timed: LabelsParty) -> None:
    person = Looker(timed.client("owner"))
    person.sign_in()
    other = dict(person.client.cookies)
    person.client.cookies.clear()
    person.sign_in()
    assert len(rows(timed)) == 2
    assert person.post("/sign-out", person.token("/overview")).status_code == 303
    assert len(rows(timed)) == 1
    assert person.get("/overview").status_code == 303
    person.client.cookies.update(other)
    assert person.get("/overview").status_code == 200


def test_a_key_has_few_sessions_at_once(timed: LabelsParty, clock: FakeClock) -> None:
    person = Looker(timed.client("owner"))
    for _ in range(MOST + 3):
        person.client.cookies.clear()
        person.sign_in()
        clock.move(seconds=1)
    assert len(rows(timed)) == MOST


def test_every_refused_key_is_told_the_same_and_counted(timed: LabelsParty, caplog: pytest.LogCaptureFixture) -> None:
    person, stranger = Looker(timed.client("owner")), Looker(timed.client("owner"))
    person.sign_in()
    timed.services.apikeys.revoke(rows(timed)[0].key_id)
    told = {(r.status_code, r.text) for r in (person.sign_in(), stranger.sign_in("lp_nothing"), stranger.sign_in("é"))}
    assert [status for status, _ in told] == [401]
    assert "revoked key" in caplog.text
    assert "unknown key" in caplog.text


@pytest.mark.parametrize("given", ["https://elsewhere.example/", "//elsewhere.example", "/\\elsewhere", "/a/../..//b"])
def test_nobody_is_led_elsewhere_after_the_sign_in(timed: LabelsParty, given: str) -> None:
    answer = Looker(timed.client("owner")).sign_in()
    elsewhere = Looker(timed.client("owner")).sign_in(next=given)
    assert elsewhere.headers["location"] == answer.headers["location"] == "./overview"


@pytest.fixture
def work(timed: LabelsParty) -> dict[str, str]:
    owner = timed.client("owner")
    batch = sealed(owner)
    population = owner.get(f"/v1/batches/{batch}").json()["population"]
    return {"release": ask(owner, batch)["id"], "population": population, "batch": batch}


def test_a_change_needs_the_token_of_its_own_session(timed: LabelsParty, work: dict[str, str]) -> None:
    officer, other = signed_in(timed.client("auditor")), signed_in(timed.client("auditor"))
    path = f"/approvals/{work['release']}/approve"
    foreign = other.token("/approvals")
    for token in (None, "", "0" * 64, foreign):
        assert officer.post(path, token).status_code == 422
    sent = {"sec-fetch-site": "cross-site"}
    officer.client.headers.update(sent)
    assert officer.post(path, officer.token("/approvals")).status_code == 422
    officer.client.headers.pop("sec-fetch-site")
    assert (
        timed.spent(timed.services.database.read("x", lambda c: timed.services.work.get(c, work["release"])).batch)
        == "0"
    )
    assert officer.get(path).status_code == 405
    assert officer.post(path, officer.token("/approvals")).headers["location"] == "../../approvals?done=approved"
    officer.get("/approvals")


def test_a_form_is_small(timed: LabelsParty) -> None:
    officer = signed_in(timed.client("owner"))
    assert officer.post("/erasures", officer.token("/erasures"), names="x" * (1 << 17)).status_code == 413
    answer = officer.client.post("/sign-in", content=b"x" * (1 << 17))
    assert answer.status_code == 413


@pytest.mark.parametrize("charset", ["punycode", "idna", "undefined", "utf-16"])
def test_a_form_of_another_charset_is_not_decoded(timed: LabelsParty, charset: str) -> None:
    form = b'--x\r\nContent-Disposition: form-data; name="key"\r\n\r\nxn--a\r\n--x--\r\n'
    kind = f"multipart/form-data; boundary=x; charset={charset}"
    answer = timed.client("owner").post("/sign-in", content=form, headers={"content-type": kind})
    assert answer.status_code == 415


def test_who_asked_does_not_approve_on_a_page_either(timed: LabelsParty) -> None:
    owner = timed.client("owner")
    wanted = ask(owner, sealed(owner))["id"]
    person = signed_in(owner)
    assert "somebody else decides" in person.get("/approvals").text
    assert person.post(f"/approvals/{wanted}/approve", person.token("/approvals")).status_code == 403


@pytest.mark.parametrize("role", sorted(EVERYBODY))
def test_a_page_is_there_for_its_roles_alone(timed: LabelsParty, work: dict[str, str], role: str) -> None:
    person = signed_in(timed.client(role))
    unknown = {"release": "rel_" + "0" * 24, "population": "pop_" + "0" * 24, "batch": "bat_" + "0" * 24}
    for path, roles in PAGES.items():
        status = person.get(path.format(**work)).status_code
        waits = path.endswith("/statement") and role in roles  # nothing is published yet
        assert status == (409 if waits else 200 if role in roles else 404), path
        if "{" in path and role not in roles:
            same = [
                re.sub("(rel|pop|bat)_[0-9a-f]+", "ID", person.get(path.format(**names)).text)
                for names in (work, unknown)
            ]
            assert same[0] == same[1]
    token = person.token("/overview")
    for path, roles in CHANGES.items():
        if role not in roles:
            assert person.post(path.format(**work), token).status_code == 404, path


def test_an_audience_sees_nothing_of_other_audiences(timed: LabelsParty, work: dict[str, str]) -> None:
    other = signed_in(timed.client("features", "somebody-else"))
    for known in (work["release"], "rel_" + "0" * 24):
        assert other.get(f"/releases/{known}").status_code == 404


@pytest.mark.extended
def test_every_page_has_the_policy_and_nothing_inline(timed: LabelsParty, work: dict[str, str]) -> None:
    person = signed_in(timed.client("owner"))
    paths = [p.format(**work) for p, roles in PAGES.items() if "owner" in roles and "statement" not in p]
    for path in [*paths, "/plan?population=shop&epsilon=1&n=1000", "/sign-in", "/given?since=nonsense"]:
        answer = person.get(path)
        assert answer.headers["content-security-policy"] == POLICY, path
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        if "html" in answer.headers["content-type"]:
            assert not re.search(
                r"<style|\sstyle=|<script(?![^>]* src=)|\son\w+=|https?://(?!www\.w3\.org)", answer.text
            ), path
    for file in set(re.findall(r'"(?:\.\./|\./)*(static/[^"]+)"', person.get("/overview").text)):
        assert "immutable" in person.get(f"/{file}").headers["cache-control"]
    assert person.get("/static/style.css").status_code == 404


def test_the_verifier_needs_no_session(timed: LabelsParty) -> None:
    answer = timed.client("owner").get("/verify", headers={"Authorization": ""})
    assert (answer.status_code, answer.content) == (200, verifier.verifier())
    assert answer.headers["content-security-policy"] == verifier.POLICY
    assert f'content="{verifier.POLICY}"' in answer.text


@pytest.mark.extended
def test_a_hostile_name_is_text(timed: LabelsParty) -> None:
    owner = timed.client("owner")
    population = {"name": HOSTILE, "label": HOSTILE, "domain": "0:10", "lifetime_epsilon": "2", "audiences": [HOSTILE]}
    found = owner.post("/v1/populations", json=population).json()["id"]
    person = signed_in(owner)
    for path in ("/overview", f"/populations/{found}", "/given", "/plan", "/erasures", "/audit"):
        text = person.get(path).text
        assert "<script>alert" not in text, path
        assert "&lt;script&gt;alert" in text, path
    for query in ("/given?audience=", "/audit?batch=", "/plan?epsilon=", "/erasures?population="):
        assert "<script>alert" not in person.client.get(query + HOSTILE).text


def test_no_label_and_no_single_value_is_on_a_page(timed: LabelsParty) -> None:
    """Ids of examples, which a page could only show beside what was drawn for them, are on none."""
    owner = timed.client("owner")
    batch = sealed(owner, {"name": "open", "label": "revenue", "domain": "0:10", "lifetime_epsilon": "2"}, "secret-id-")
    release = ask(owner, batch)["id"]
    timed.services.worker.drain()
    published(owner, release)
    population = owner.get(f"/v1/batches/{batch}").json()["population"]
    person = signed_in(owner)
    for path in PAGES:
        if path != "/releases":
            answer = person.get(path.format(release=release, population=population, batch=batch))
            assert answer.status_code == 200
            assert "secret-id-" not in answer.text, path


@pytest.mark.extended
def test_an_officer_declines_with_a_word_why(timed: LabelsParty, work: dict[str, str]) -> None:
    officer = signed_in(timed.client("auditor"))
    waiting = officer.get("/approvals").text
    assert f'<a href="./releases/{work["release"]}">' in waiting
    assert "for the labels" in waiting
    released = officer.get(f"/releases/{work['release']}").text
    assert f'href="./batches/{work["batch"]}"' in waiting
    for page in (released, officer.get(f"/populations/{work['population']}").text):
        assert f'href="../batches/{work["batch"]}"' in page
    page = officer.get(f"/batches/{work['batch']}").text
    assert f'href="../releases/{work["release"]}"' in page
    address = re.search(r'href="\.\./(populations/[^"?]+\?month=\d{4}-\d\d)#(bat_[^"]+)"', page)
    assert address is not None
    assert f'id="{address[2]}"' in officer.get(f"/{address[1]}").text
    path = f"/approvals/{work['release']}/decline"
    officer.post(path, officer.token("/approvals"), reason="the other model needs it")
    assert "the other model needs it" in officer.get(f"/audit?work={work['release']}").text
    assert "No release or answer waits" in officer.get("/approvals").text
    # what somebody ended did not fail, and nobody has it
    page = officer.get(f"/releases/{work['release']}").text
    assert 'class="tag declined"' in page
    assert 'class="tag failed"' not in page
    assert 'class="wrong"' not in page
    listed = officer.get("/given").text
    assert 'class="tag declined"' in listed
    assert work["release"] in listed
    assert work["release"] not in officer.get("/given?audience=features-party").text


@pytest.mark.extended
def test_the_export_of_a_page_agrees_with_the_store(timed: LabelsParty, work: dict[str, str]) -> None:
    officer = signed_in(timed.client("auditor"))
    token, export = officer.token("/audit"), officer.get("/audit/export").content
    told = officer.post("/audit/verify", token).text
    assert "events hold" in told
    assert re.search(r"<details><summary>Checked \(\d+\)</summary>", told)

    def compared(data: bytes) -> str:
        return officer.client.post(
            "/audit/compare", data={"csrf": token}, files={"export": ("a.json", data, "application/json")}
        ).text

    assert "events agree with the export of this party" in compared(export)
    assert 'class="wrong"' in compared(export[:-9] + b"AAAA" + export[-5:])


@pytest.mark.extended
def test_a_root_leads_to_the_first_page_and_paths_are_relative(timed: LabelsParty, work: dict[str, str]) -> None:
    person: Any = signed_in(timed.client("owner"))
    assert person.get("/").headers["location"] == "./overview"
    deep = person.get(f"/releases/{work['release']}").text
    assert 'href="../static/style.' in deep
    assert 'href="../overview"' in deep
    assert not re.search(r'(href|action|src)="/', deep)


@pytest.mark.extended
def test_an_erasure_is_asked_for_and_looked_up(timed: LabelsParty) -> None:
    owner = timed.client("owner")
    rules = {"name": "erasable", "label": "revenue", "domain": "0:10", "lifetime_epsilon": "2", "missing_label": "0"}
    batch = sealed(owner, rules)
    never = rules | {"name": "fixed", "label": "other", "missing_label": None}
    declared = owner.post("/v1/populations", json=never).json()
    assert "no label can ever be erased" in declared["ruled_out"][0]
    assert "ever be erased" not in str(owner.get("/v1/populations/erasable").json()["ruled_out"])
    person = signed_in(owner)
    assert "no label can ever be erased" in person.get("/populations/fixed").text
    page = person.get("/erasures").text
    form = page.partition('id="e-population"')[2].partition("</select>")[0]
    assert ">erasable<" in form
    assert ">fixed<" not in form
    assert "Not in" in page
    token, names = person.token("/erasures"), "c1\n c2 \n\nc-none"
    refused = person.post("/erasures", token, population="fixed", names="c1", sure="yes")
    assert "labels-party purge BATCH" in refused.text
    warned = person.post("/erasures", token, population="erasable", names=names).text
    assert "The labels of 3 example ids in erasable are erased. It cannot be undone" in warned
    assert "No request" in person.get("/erasures?population=erasable").text
    answer = person.post("/erasures", token, population="erasable", names=names, sure="yes")
    assert "3 example ids" in answer.text
    assert "1 has no example in any batch of erasable. Check the spelling: c-none" in answer.text
    timed.services.erasures.finish()
    found = person.get("/erasures?population=erasable&example_id=c1").text
    assert batch in found
    assert "before any release" in found
    assert "No request for this example" in person.get("/erasures?population=erasable&example_id=c9").text


@pytest.mark.extended
def test_an_unknown_address_is_a_page_for_browsers_a_problem_for_programs(timed: LabelsParty) -> None:
    client, browser = timed.client("auditor"), {"Accept": "text/html,application/xhtml+xml;q=0.9"}
    page = client.get("/nowhere", headers=browser)
    assert (page.status_code, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert "There is no such page." in page.text
    assert page.headers["Content-Security-Policy"] == POLICY
    for path, headers in (("/nowhere", {"Accept": "*/*"}), ("/v1/nowhere", browser)):
        answer = client.get(path, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (404, "not-found")


def test_pages_are_not_in_the_reference_of_calls(owner: TestClient) -> None:
    assert [
        path
        for path in owner.get("/openapi.json").json()["paths"]
        if not path.startswith(("/v1/", "/healthz", "/readyz", "/metrics"))
    ] == []


@pytest.mark.extended
def test_a_person_is_erased_with_all_examples(timed: LabelsParty) -> None:
    owner = timed.client("owner")
    rules: dict[str, Any] = {
        "name": "people",
        "label": "revenue",
        "domain": "0:10",
        "lifetime_epsilon": "2",
        "missing_label": "0",
    }
    rules |= {"unit_column": "person", "max_examples_per_unit": 1}
    owner.post("/v1/populations", json=rules)
    batch = owner.post("/v1/populations/people/batches", json={}).json()["id"]
    rows = [{"example_id": f"c{i}", "unit": f"p{i // 2}"} for i in range(20)]
    assert owner.put(f"/v1/batches/{batch}/examples", json={"records": rows}).status_code == 200
    labels = [{"example_id": f"c{i}", "label": 1} for i in range(20)]
    owner.post(f"/v1/batches/{batch}/labels", json={"records": labels})
    assert owner.post(f"/v1/batches/{batch}/seal").json()["examples_beyond"] == 10  # before anything is charged
    owner.headers["Authorization"] = f"Bearer {timed.services.apikeys.create('owner', name='Ada Officer')[1]}"
    person = signed_in(owner)
    assert "10 beyond the bound of one person" in person.get("/populations/people").text
    release = timed.release(batch, "0.5", mechanism="one-bit")
    said = "10 of 20 examples (50 %) are beyond the 1 that one person may have over the population's lifetime"
    assert said in person.get(f"/releases/{release}").text.replace("&#39;", "'")
    assert said in person.get(f"/releases/{release}/statement").text.replace("&#39;", "'")
    token = person.token("/erasures")
    answer = person.post("/erasures", token, population="people", what="units", names="p3\nnobody", sure="yes")
    assert "1 person, with 2 examples" in answer.text
    assert "Check the spelling: nobody" in answer.text
    timed.services.erasures.finish()
    told = person.get("/erasures?population=people&unit=p3").text
    assert re.search(r"p3: asked for on \S+ by Ada Officer\.", told)
    assert "2 examples of sealed batches, 0 of them still to be done" in told
    assert told.count('data-label="Asked for"') == 2
    assert "No request for this person" in person.get("/erasures?population=people&unit=p9").text


def test_the_audit_page_offers_the_events_of_its_party_and_nothing_else(timed: LabelsParty) -> None:
    offered = re.findall(r'<option value="([^"]+)"', signed_in(timed.client("auditor")).get("/audit").text)
    assert offered == sorted(OF_LABELS_PARTY)
