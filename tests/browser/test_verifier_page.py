"""The verifier's page in Chromium, from disk, over the whole conformance kit: what it says, and that it asks nobody."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from label_dp.pages.verifier import NAME, verifier
from tests.conformance.__main__ import arguments_of, differences
from tests.conformance.conftest import kit as kit
from tests.conformance.verdict import Verdict, arguments
from tests.support.browser import Person

pytestmark = pytest.mark.processes
AFRESH = """([kind, audience]) => {
    chosen.clear();
    document.getElementById("kind").value = kind;
    document.getElementById("audience").value = audience;
    document.getElementById("results").replaceChildren();
}"""
PLANTED = {
    "signature": ("need(await signedBy(key, signature, type, payload)", "need(true"),
    "digest": ("(await sha256(data)) === entry.sha256", "true"),
    "rule-8": ("if (batch.nano + total > p.life", "if (batch.nano + total < 0n"),
}


class PageClient:
    """The page as a client of the kit; `requests`: what it asked for besides itself."""

    def __init__(self, browser: Any, path: Path) -> None:
        self.person, self.address, self.requests = Person(browser, ""), path.as_uri(), list[str]()
        self.person.page.on("request", lambda request: self.requests.append(request.url))

    def __call__(self, command: str, words: list[str]) -> Verdict:
        given, page = arguments(words), self.person.page
        if page.url != self.address:
            page.goto(self.address)
            page.locator("html[data-ready=yes]").wait_for()
        page.evaluate(AFRESH, [command, given.audience or ""])  # to open the page anew takes five times as long
        folder = given.path if given.path.is_dir() else given.path.parent
        keys = [key for key in (given.key, given.against_key) if key is not None]
        documents = sorted(folder.iterdir()) if command == "verify-message" else [given.path, given.against]
        files = [*dict.fromkeys(keys), *(path for path in documents if path is not None)]
        page.locator("#files").set_input_files([str(file) for file in files])
        page.locator("main[aria-busy=false] article").wait_for()
        card = page.locator("article")
        return Verdict(str(card.get_attribute("data-code")), card.inner_text())


@pytest.fixture
def client(browser: Any, tmp_path: Path) -> Iterator[PageClient]:
    path = tmp_path / NAME
    path.write_bytes(verifier())
    found = PageClient(browser, path)
    yield found
    found.person.close()


@pytest.mark.extended
def test_it_says_of_the_whole_kit_what_the_kit_says(client: PageClient, kit: Path) -> None:
    lines, counts = differences(kit, client)
    assert lines == []
    assert counts["verify-message: the same"] > 300
    assert counts["verify-audit: the same"] > 300
    assert {url for url in client.requests if not url.startswith("file:")} == set()
    assert client.person.errors == []


def test_it_says_in_sentences_what_was_promised_and_spent(client: PageClient, kit: Path) -> None:
    cases = {case["name"]: case for case in json.loads((kit / "cases.json").read_text())}

    def said(name: str) -> str:
        return client(cases[name]["command"], arguments_of(kit, cases[name])).why

    message = said("golden message")
    for words in ("It cost ε 1.05", "spent ε 1.3 of its lifetime ε 2.5", "features-party", "per example", "Verified."):
        assert words in message
    assert client.person.axe() == []
    audit = said("honest chain of a labels party")
    assert "Rule 19 was not checked" in audit
    assert "cut off at the end was not checked" in audit
    assert "Rule 19 was not checked" not in said("two exports: what was accepted is charged")
    assert "Rule 19 was not checked" in said("two exports: an older export of the same store")
    assert "Verified." in said("rectangle: ranks")


@pytest.mark.parametrize("code", PLANTED)
def test_a_page_that_skips_a_check_is_caught(code: str, browser: Any, tmp_path: Path, kit: Path) -> None:
    text = verifier().decode()
    assert text.count(PLANTED[code][0]) == 1
    (tmp_path / NAME).write_text(text.replace(*PLANTED[code]))
    page = PageClient(browser, tmp_path / NAME)
    cases = [case for case in json.loads((kit / "cases.json").read_text()) if case["code"] == code]
    verdicts = Counter(page(case["command"], arguments_of(kit, case)).code for case in cases[:40])
    page.person.close()
    assert set(verdicts) != {code}
