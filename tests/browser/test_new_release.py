"""A new release in Chromium: an analyst with pages alone gets from a CSV file to a published message."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.browser import Person
from tests.support.labels import LabelsParty, label_table
from tests.support.serving import serving

pytestmark = pytest.mark.processes
ROWS = 400
LOOKS: dict[str, dict[str, bool]] = {
    "wide": {},
    "wide, dark": {"dark": True},
    "phone, no scripts": {"phone": True, "scripts": False},
    "phone, dark": {"phone": True, "dark": True},
}


class Served:
    """A running service, and keys for it."""

    def __init__(self, party: LabelsParty, base: str) -> None:
        self.party, self.base = party, base

    def key(self, role: str) -> str:
        return self.party.services.apikeys.create(role, "features-party" if role == "features" else None)[1]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with LabelsParty(tmp_path_factory.mktemp("labels") / "home") as party:
        party.client("owner")
        with serving(party.application) as base:
            yield Served(party, base)


def file(folder: Path, prefix: str, *, third: str = "7") -> Path:
    """A CSV file of three columns; `third`: the label of its third row."""
    path = folder / f"{prefix}.csv"
    rows = (f"2026-11-{1 + i % 28:02d},{prefix}{i},{third if i == 2 else i % 50}" for i in range(ROWS))
    path.write_text("\n".join(["day,click,value", *rows]) + "\n", encoding="utf-8")
    return path


def declare(person: Person, name: str, **more: str) -> None:
    person.open("/overview", "Overview")
    person.page.get_by_role("link", name="New release").first.click()
    person.sees("New release")
    for label, value in {"Name": name, "Label": "value", "Domain": "0:60"}.items() | more.items():
        person.page.get_by_label(label, exact=True).fill(value)


@pytest.mark.parametrize("look", LOOKS)
def test_from_a_file_to_a_message_by_pages_alone(browser: Any, served: Served, tmp_path: Path, look: str) -> None:
    person = Person(browser, served.base, **LOOKS[look])
    page, name = person.page, f"shop {len(look)}"
    person.sign_in(served.key("owner"))
    declare(person, name)
    page.get_by_role("button", name="Declare it").click()
    person.sees("File of labels")
    chosen = page.get_by_label("CSV file with a header")
    chosen.set_input_files(file(tmp_path, "bad", third="seven"))
    if person.scripts:  # the header is read before anything is sent
        page.locator('#f-label_column option[value="day"]').wait_for(state="attached")
        assert page.get_by_label("Column with labels").input_value() == "value"
    else:
        page.get_by_role("button", name="Check the file").click()
        person.sees("File of labels")
        assert "nothing was kept of it" in page.get_by_role("status").inner_text()
        chosen.set_input_files(tmp_path / "bad.csv")
    page.get_by_label("Column with ids").select_option("click")
    page.get_by_role("button", name="Check the file").click()
    person.sees("File of labels")
    assert "the first is row 3" in page.get_by_role("alert").inner_text()
    chosen.set_input_files(file(tmp_path, f"c{len(look)}-"))
    page.get_by_label("Column with ids").select_option("click")
    page.get_by_role("button", name="Check the file").click()
    person.sees("File checked")
    assert f"{ROWS} rows, ids from click, labels from value" in page.get_by_role("status").inner_text()
    page.get_by_role("link", name="Go on to the plan").click()
    page.locator(".advice").wait_for()
    person.sees("Plan of a release")
    assert "--id-column click" in page.locator("pre").first.text_content()
    page.get_by_text("The same by command, or in Python").click()
    person.picture("plan with commands")
    page.get_by_role("button", name="Go on with ε 1").click()
    person.sees("Charge a release")
    page.get_by_role("button", name="Seal the batch, and charge ε 1").click()
    link = page.get_by_role("link", name="Open the statement")
    if not person.scripts:
        while not link.count():
            page.reload()
    link.wait_for(timeout=60_000)
    person.sees("Release")
    page.get_by_text("The same by command, or in Python").click()
    assert "labels_party.privatize(" in page.locator("pre").nth(1).text_content()
    person.picture("published with commands")
    link.click()
    assert "Release statement" in page.title()
    person.close()


def test_what_the_budget_does_not_allow_is_said_before_anything_is_charged(
    browser: Any, served: Served, tmp_path: Path
) -> None:
    person = Person(browser, served.base)
    person.sign_in(served.key("owner"))
    declare(person, "small budget", **{"Lifetime ε per example": "0.5"})
    person.page.get_by_role("button", name="Declare it").click()
    person.sees("File of labels")
    person.page.get_by_label("CSV file with a header").set_input_files(file(tmp_path, "b"))
    person.page.get_by_label("Column with ids").select_option("click")
    person.page.get_by_role("button", name="Check the file").click()
    person.page.get_by_role("link", name="Go on to the plan").click()
    person.sees("Plan of a release")
    slider = person.page.get_by_label("ε per example", exact=True)
    slider.focus()
    person.page.keyboard.press("End")
    said = person.page.get_by_role("alert")
    said.filter(has_text="ε 8 would be refused: at most 0.5 is left for this batch.").wait_for()
    assert person.page.get_by_role("button", name="Go on with").count() == 0
    person.page.keyboard.press("Home")
    person.page.get_by_role("button", name="Go on with ε 0.05").wait_for()
    person.page.get_by_role("link", name="bat_").first.click()
    person.sees("Batch")
    person.page.get_by_role("button", name="Discard it").click()
    person.sees("Discard a batch")
    person.page.get_by_role("button", name="Discard it").click()
    person.sees("small budget")
    assert "Discarded" in person.page.get_by_role("status").inner_text()
    person.close()


def test_a_second_person_approves_and_nobody_else_begins_a_release(
    browser: Any, served: Served, tmp_path: Path
) -> None:
    owner = Person(browser, served.base)
    owner.sign_in(served.key("owner"))
    declare(owner, "four eyes")
    owner.page.get_by_text("Further rules").click()
    owner.page.get_by_label("A second person approves").check()
    owner.picture("declared with further rules")
    owner.page.get_by_role("button", name="Declare it").click()
    owner.page.get_by_label("CSV file with a header").set_input_files(file(tmp_path, "f"))
    owner.page.get_by_label("Column with ids").select_option("click")
    owner.page.get_by_role("button", name="Check the file").click()
    owner.page.get_by_role("link", name="Go on to the plan").click()
    owner.page.get_by_role("button", name="Go on with ε 1").click()
    owner.sees("Ask for a release")
    owner.page.get_by_role("button", name="Seal the batch, and ask for approval of ε 1").click()
    owner.sees("Release")
    assert "It waits for a second person" in owner.page.locator(".waits").inner_text()
    approver = Person(browser, served.base)
    approver.sign_in(served.key("approver"))
    assert approver.page.get_by_role("link", name="New release").count() == 0
    for path in ("/new", owner.page.url.removeprefix(served.base).partition("?")[0].replace("releases", "batches")):
        approver.page.goto(served.base + path)
        assert approver.page.locator("h1").inner_text() == "Not found"
    approver.errors.clear()
    approver.open("/approvals", "Approvals")
    approver.page.get_by_role("button", name="Approve, and charge ε 1").click()
    owner.page.reload()
    owner.page.get_by_role("link", name="Open the statement").wait_for(timeout=60_000)
    for person in (owner, approver):
        person.close()


def test_ids_in_sentences_lead_to_their_pages(browser: Any, served: Served) -> None:
    batch = served.party.sealed_batch(label_table(40, prefix="ids"))
    release = served.party.release(batch)
    person = Person(browser, served.base)
    person.sign_in(served.key("auditor"))
    person.open(f"/audit?work={release}", "Audit")
    person.page.get_by_role("link", name=release).first.click()
    person.sees("Release")
    person.open(f"/audit?batch={batch}", "Audit")
    person.page.get_by_role("link", name=batch).first.click()
    person.sees("Batch")
    person.close()
