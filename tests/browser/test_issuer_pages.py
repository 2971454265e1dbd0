"""People of a company in Chromium: they sign in at its OIDC issuer, on another site, and loosen a ceiling."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from label_dp.errors import BudgetExceeded, SecondPersonNeeded
from label_dp.schemas.policy import Policy
from label_dp.schemas.validation import as_model
from labels_party.files.policy import apply
from tests.support.browser import Person
from tests.support.issuer import CLIENT, Issuer
from tests.support.labels import LabelsParty, label_table
from tests.support.serving import free_port, serving

pytestmark = pytest.mark.processes


@dataclass
class Company:
    """A labels party that takes two people of the issuer for an approval. The issuer is another site than the pages."""

    issuer: Issuer
    party: LabelsParty
    base: str

    def enter(self, person: Person, who: str, path: str = "/") -> None:
        person.page.goto(self.base + path)
        person.page.get_by_role("link", name="Sign in with an account").click()
        person.page.get_by_role("link", name=who).click()


@pytest.fixture
def company(tmp_path: Path) -> Iterator[Company]:
    port = int(free_port())
    base = f"http://127.0.0.1:{port}"
    with Issuer(int(time.time())) as issuer:
        issuer.url = issuer.named = issuer.url.replace("127.0.0.1", "localhost")
        issuer.redirect = f"{base}/sign-in/return"
        issuer.people = {
            "ada": {"name": "Ada Lovelace"},
            "ben": {"name": "Ben Officer", "label_dp_role": "approver"},
            "guest": {"label_dp_role": None},
        }
        pages = {"oidc_client_id": CLIENT, "oidc_redirect": issuer.redirect, "four_eyes": "people"}
        with (
            LabelsParty(tmp_path / "home", worker=False, **issuer.settings(**pages)) as party,
            party.client(),  # starts the application
            serving(party.application, port=port),
        ):
            yield Company(issuer, party, base)


@pytest.fixture
def person(browser: Any, company: Company) -> Iterator[Person]:
    found = Person(browser, company.base)
    yield found
    found.close()


def test_people_enter_by_the_issuer_and_leave(person: Person, company: Company) -> None:
    company.enter(person, "guest")
    assert "Your account has no role of this service" in person.page.get_by_role("alert").inner_text()
    person.errors.clear()  # the console notes the 401
    person.sees("Sign in")
    company.enter(person, "ada", "/given")
    person.page.wait_for_url("**/given")
    person.sees("Who has what")
    assert "Owner Ada Lovelace" in person.page.locator("header").inner_text()
    person.page.reload()
    person.sees("Who has what")
    person.page.get_by_role("button", name="Sign out").click()
    assert "You have signed out." in person.page.get_by_role("status").inner_text()
    person.open("/given", "Sign in")


def test_a_second_person_loosens_the_policy(person: Person, company: Company) -> None:
    party = company.party
    batch = party.sealed_batch(label_table(20))
    strict, loose = (as_model({"ceilings": {"epsilon_per_release": epsilon}}, Policy) for epsilon in ("1", "2"))
    apply(party.services, strict, "command line: Ada")
    assert [step.state for step in apply(party.services, loose, "command line: Ada")] == ["waits"]
    with pytest.raises(SecondPersonNeeded, match="page Approvals"):
        apply(party.services, loose, "command line: Ben")  # no name of a command is a person of the issuer
    with pytest.raises(BudgetExceeded):
        party.charge(batch, "2")
    company.enter(person, "ben")
    person.page.wait_for_url("**/overview")
    person.sees("Overview")
    person.page.get_by_role("link", name="somebody else to apply it").click()
    person.sees("Approvals")
    assert "would hold every charge to: ε of one charge 2. Today: ε of one charge 1." in person.page.content()
    person.page.get_by_role("button", name="Apply this policy").click()
    assert "Applied." in person.page.get_by_role("status").inner_text()
    person.sees("Approvals")
    party.charge(batch, "2")
    person.open("/approvals", "Approvals")
    assert person.page.get_by_role("button", name="Apply this policy").count() == 0
