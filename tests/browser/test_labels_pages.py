"""The labels party's pages in Chromium: a day of owner and officer, and what an audience sees."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.browser import Person
from tests.support.events import SECOND, EventShop, event
from tests.support.labels import LabelsParty
from tests.support.labels_api import published
from tests.support.own_features import document
from tests.support.serving import serving

pytestmark = pytest.mark.processes
PARQUET = "application/vnd.apache.parquet"
HOSTILE = "shop <script>alert(1)</script>"


class Day:
    """A running service with a published release, one that waits, and a batch whose labels came from events."""

    def __init__(self, party: LabelsParty, base: str) -> None:
        self.party, self.base = party, base
        owner = party.client("owner")
        four = {"name": HOSTILE, "label": "revenue", "domain": "0:60", "lifetime_epsilon": "8", "four_eyes": True}
        plain = {"name": "web sales", "label": "sales", "domain": "0:60", "lifetime_epsilon": "4", "missing_label": "0"}
        self.four = owner.post("/v1/populations", json=four).json()["id"]
        self.web = owner.post("/v1/populations", json=plain | {"retention_days": 30, "alert_percent": [20]}).json()[
            "id"
        ]
        self.release = self.asked(owner, self.web, "c", "balanced")
        published(owner, self.release)
        self.waiting = self.asked(owner, self.four, "d", "one-bit")
        self.sums = self.summed(owner, self.web, "e")
        shop = EventShop(party)
        self.of_events = shop.open(shop.population("orders", window_days=7), ["a"], {"a": SECOND})
        shop.send(event("a", 30, id="1"), event("a", 40, id="1"), event("a", 5, event_type="page_view"), event("x", 1))
        shop.sealed(self.of_events)

    @staticmethod
    def asked(owner: Any, population: str, prefix: str, mechanism: str) -> str:
        batch = owner.post(f"/v1/populations/{population}/batches", json={"presence": "public"}).json()["id"]
        rows = [{"example_id": f"{prefix}{i}", "label": i % 50} for i in range(300)]
        owner.post(f"/v1/batches/{batch}/labels", json={"records": rows})
        owner.post(f"/v1/batches/{batch}/seal")
        body = {"epsilon": "1", "mechanism": mechanism}
        return str(owner.post(f"/v1/batches/{batch}/releases", json=body).json()["id"])

    @staticmethod
    def summed(owner: Any, population: str, prefix: str) -> str:
        batch = owner.post(f"/v1/populations/{population}/batches", json={"presence": "public"}).json()["id"]
        rows = [{"example_id": f"{prefix}{i}", "label": i % 7} for i in range(400)]
        groups = [
            {
                "example_id": f"{prefix}{i}",
                "campaign": f"campaign with a long name, number {i % 60}",
                "country": f"c{i % 3}",
                "web": i % 2,
            }
            for i in range(400)
        ]
        owner.post(f"/v1/batches/{batch}/labels", json={"records": rows})
        owner.post(f"/v1/batches/{batch}/seal")
        buffer = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(groups), buffer)
        owner.put(f"/v1/batches/{batch}/features", content=buffer.getvalue(), headers={"Content-Type": PARQUET})
        body = {"epsilon": "2", "by": ["country", "country,web", "campaign"]}
        answer = str(owner.post(f"/v1/batches/{batch}/sums", json=body).json()["id"])
        document(owner, "sums", answer)
        return answer

    def key(self, role: str) -> str:
        audience = "features-party" if role == "features" else None
        return self.party.services.apikeys.create(role, audience)[1]


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Day]:
    with LabelsParty(tmp_path_factory.mktemp("labels") / "home") as party:
        party.client("owner")
        with serving(party.application) as base:
            yield Day(party, base)


@pytest.fixture(params=[{}, {"phone": True, "dark": True}], ids=["wide", "phone, dark"])
def person(request: pytest.FixtureRequest, browser: Any, day: Day) -> Iterator[Person]:
    found = Person(browser, day.base, **request.param)
    yield found
    found.close()


def test_an_officer_looks_at_every_page(person: Person, day: Day) -> None:
    person.page.goto(day.base + "/")
    person.sees("Sign in")
    person.sign_in(day.key("auditor"))
    person.sees("Overview")
    person.page.get_by_role("link", name="web sales").click()
    person.sees("web sales")
    person.page.get_by_role("link", name="release").first.click()
    person.sees("Release")
    person.page.get_by_role("link", name="bat_").click()
    person.sees("Batch")
    person.page.get_by_role("link", name="release").click()
    person.sees("Release")
    person.page.get_by_role("link", name="Open the statement").click()
    assert "Release statement" in person.page.title()
    person.open("/given?audience=features-party", "Who has what")
    person.open("/approvals", "Approvals")
    person.open("/erasures?population=web+sales", "Erasures")
    person.open("/audit", "Audit")
    person.page.get_by_role("button", name="Verify now").click()
    person.sees("Verification")
    person.open("/plan?population=web+sales&epsilon=1&n=100000", "Plan")
    assert "Take " in person.page.locator(".advice").inner_text()
    slider = person.page.get_by_label("ε per example", exact=True)
    slider.focus()
    person.page.keyboard.press("End")
    assert person.page.locator("output").first.inner_text() == "8"
    person.page.locator(".advice", has_text="ε 8 is more than the lifetime allows").wait_for()
    assert "e=23" in person.page.url
    person.page.keyboard.press("Home")
    person.page.locator(".advice", has_text="ε 0.05").wait_for()
    person.page.get_by_role("button", name="Sign out").click()
    person.sees("Sign in")


def test_an_owner_looks_at_what_became_of_events(person: Person, day: Day) -> None:
    person.sign_in(day.key("owner"))
    person.open("/populations/orders", "orders")
    person.page.get_by_role("link", name=day.of_events[:12]).click()
    person.sees("Batch")
    assert "4 records came" in person.page.get_by_role("table").last.inner_text()


def test_an_audience_looks_at_sums_by_group(person: Person, day: Day) -> None:
    person.sign_in(day.key("features"))
    person.open(f"/answers/{day.sums}", "Answer")
    assert person.page.locator("svg.picture").count() == 3
    assert person.page.get_by_role("table", name="Sums and means by country and web").get_by_role("row").count() == 7


def test_a_table_sorts_by_its_heads_and_leaves_as_csv(browser: Any, day: Day) -> None:
    person = Person(browser, day.base)
    person.sign_in(day.key("auditor"))
    person.open("/given?audience=features-party", "Who has what")
    table = person.page.locator("main table").first
    heads = table.locator("thead th")
    at = next(i for i, text in enumerate(heads.all_inner_texts()) if text.startswith("ε"))

    def column() -> list[float]:
        return [float(text.split()[0]) for text in table.locator(f"tbody tr > :nth-child({at + 1})").all_inner_texts()]

    as_it_came, button = column(), heads.nth(at).get_by_role("button")
    assert len(set(as_it_came)) > 1
    button.click()
    assert column() == sorted(as_it_came)
    button.click()
    assert column() == sorted(as_it_came, reverse=True)
    assert heads.nth(at).get_attribute("aria-sort") == "descending"
    person.sees("Who has what")
    with person.page.expect_download() as saved:
        person.page.get_by_role("button", name="Save as CSV").first.click()
    rows = list(csv.reader(io.StringIO(saved.value.path().read_text(encoding="utf-8-sig"), newline="")))
    assert saved.value.suggested_filename.endswith(".csv")
    assert [row[at].split()[0] for row in rows[1:]] == [f"{value:g}" for value in column()]
    assert any(day.release in cell for row in rows for cell in row)  # whole, where the page cuts it short
    person.close()


def test_a_name_that_is_a_script_is_text(browser: Any, day: Day) -> None:
    person = Person(browser, day.base)
    alerts: list[str] = []
    person.page.on("dialog", lambda dialog: (alerts.append(dialog.message), dialog.dismiss()))
    person.sign_in(day.key("owner"))
    person.open(f"/populations/{day.four}", HOSTILE)
    assert alerts == []
    person.close()


def test_a_second_person_declines_and_the_owner_reads_why(browser: Any, day: Day) -> None:
    owner = Person(browser, day.base)
    owner.sign_in(day.key("owner"))
    owner.open("/approvals", "Approvals")
    wanted = day.asked(day.party.client("owner"), day.four, "e", "one-bit")
    officer = Person(browser, day.base, scripts=False)
    officer.sign_in(day.key("auditor"))
    officer.page.goto(day.base + "/approvals")
    box = officer.page.locator(f"article[aria-labelledby='h-{wanted}']")
    box.get_by_label("Reason, one line").fill("not this month")
    box.get_by_role("button", name="Decline").click()
    assert "Nothing was charged" in officer.page.get_by_role("status").inner_text()
    owner.open(f"/audit?work={wanted}", "Audit")
    assert "not this month" in owner.page.locator("table").inner_text()
    owner.close()
    officer.close()


def test_an_audience_sees_its_release_and_nothing_else(browser: Any, day: Day) -> None:
    person = Person(browser, day.base)
    person.sign_in(day.key("features"))
    person.open("/releases", "Releases for features-party")
    person.page.get_by_role("link", name=day.release).click()
    person.sees("Release")
    person.page.goto(day.base + "/given")
    assert person.page.locator("h1").inner_text() == "Not found"
    person.close()


def test_everything_is_reached_by_keyboard(browser: Any, day: Day) -> None:
    person = Person(browser, day.base)
    person.sign_in(day.key("auditor"))
    person.page.keyboard.press("Tab")
    assert person.page.evaluate("document.activeElement.textContent") == "Skip to the content"
    person.page.keyboard.press("Enter")
    assert person.page.evaluate("document.activeElement.id") == "content"
    person.close()
