"""The pictures of pages in the guides, made anew: `make pictures`, or `python -m tests.browser.pictures`.

A made-up month of a labels party, and a model of a features party, as they look in Chromium.
"""

from __future__ import annotations

import datetime as dt
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.browser import Person, chromium
from tests.support.features_api import message_files, running
from tests.support.labels import FakeClock, LabelsParty
from tests.support.messages import Sender, one_bit, world
from tests.support.serving import serving

PICTURES = Path(__file__).parents[2] / "deploy" / "guides" / "pictures"
DAYS, ROWS, FIRST = 24, 400, dt.datetime(2026, 11, 1, 6, tzinfo=dt.UTC)
FOUR = {"name": "store visits", "label": "basket", "domain": "0:120", "lifetime_epsilon": "4", "four_eyes": True}
SHOP: dict[str, Any] = {
    "name": "orders",
    "label": "revenue",
    "domain": "0:60",
    "lifetime_epsilon": "3",
    "missing_label": "0",
    "audiences": ["news.example", "video.example"],
    "retention_days": 30,
    "alert_percent": [60],
}


def month(party: LabelsParty, clock: FakeClock) -> None:
    """A batch a day, most of them released; one that waits for a second person."""
    key = party.services.apikeys.create("owner", name="Night job")[1]
    owner = party.client("owner")
    owner.headers["Authorization"] = f"Bearer {key}"
    for population in (SHOP, FOUR):
        assert owner.post("/v1/populations", json=population).status_code == 201
    random = np.random.default_rng(1)
    for day in range(DAYS):
        released(party, owner, "orders", f"c{day}-", random, "1" if day % 7 < 5 else "0.5")
        clock.move(days=1)
    released(party, owner, "store visits", "v", random, "0.5")


def released(
    party: LabelsParty, owner: Any, population: str, prefix: str, random: np.random.Generator, epsilon: str
) -> None:
    batch = owner.post(f"/v1/populations/{population}/batches", json={"presence": "public"}).json()["id"]
    labels = random.poisson(18, int(ROWS * random.uniform(0.7, 1.4)))
    records = [{"example_id": f"{prefix}{i}", "label": int(label)} for i, label in enumerate(labels)]
    owner.post(f"/v1/batches/{batch}/labels", json={"records": records})
    owner.post(f"/v1/batches/{batch}/seal")
    assert (
        owner.post(f"/v1/batches/{batch}/releases", json={"epsilon": epsilon, "mechanism": "one-bit"}).status_code
        == 202
    )
    party.services.worker.drain()


def shot(person: Person, path: str, heading: str, name: str, height: int) -> None:
    person.page.set_viewport_size({"width": 1240, "height": height})
    person.open(path, heading)
    person.page.wait_for_selector("main:not(:has([data-live]))", timeout=120_000)  # what is worked out came
    person.page.screenshot(path=str(PICTURES / f"{name}.png"))


# two sheets of A4 beside each other, as they leave a printer: columns break where pages do
SHEETS = """document.querySelector("html").style.background = "#c9d1d8";
Object.assign(document.body.style, {columns: "2", columnGap: "154px", columnFill: "auto", width: "1608px",
  height: "1123px", maxWidth: "none", margin: "0", padding: "53px 57px",
  background: "linear-gradient(90deg, #fff 0 794px, #c9d1d8 794px 814px, #fff 814px)"})"""


def statement(person: Person) -> None:
    """The statement of the newest release as it is printed."""
    person.open("/populations/orders", "orders")
    person.page.locator('a[href*="releases/rel_"]').first.click()
    person.page.wait_for_url("**/releases/rel_*")
    person.page.set_viewport_size({"width": 1608, "height": 1123})
    person.page.emulate_media(media="print")
    person.page.goto(f"{person.page.url}/statement")
    person.page.evaluate(SHEETS)
    person.page.screenshot(path=str(PICTURES / "statement.png"))
    person.page.emulate_media(media="screen")


@contextmanager
def labels_party(folder: Path) -> Iterator[tuple[str, str, str]]:
    """A labels party with a month behind it: its address, a key and the role of that key."""
    clock = FakeClock()
    clock.now = FIRST
    with LabelsParty(folder / "labels", clock=clock, worker=False) as party:
        month(party, clock)
        key = party.services.apikeys.create("auditor", name="Ada Officer")[1]
        with serving(party.application) as base:
            yield base, key, "auditor"


@contextmanager
def features_party(folder: Path) -> Iterator[tuple[str, str, str]]:
    """A features party with a message and a model of it: its address, a key and the role of that key."""
    sender, sent = Sender(), world(4_000)
    with running(folder, sender, max_body_bytes=1 << 25) as api, serving(api.app.app) as base:
        api.accept(message_files(sender, folder / "sent", sent, one_bit(epsilon=3.0)))
        api.trained(api.table(sent.table()), model="ensemble", name="first model")
        yield base, api.services.apikeys.create("trainer", name="Grace Analyst")[1], "trainer"


def labels_pages(person: Person) -> None:
    shot(person, "/overview", "Overview", "overview", 520)
    shot(person, "/populations/orders", "orders", "population", 860)
    shot(person, "/given?audience=news.example", "Who has what", "who-has-what", 640)
    shot(person, "/plan?population=orders&epsilon=1&n=100000", "Plan", "plan", 800)
    statement(person)


def features_pages(person: Person) -> None:
    person.open("/models", "Models")
    person.page.get_by_role("link", name="first model").first.click()
    person.page.wait_for_url("**/models/*")
    shot(person, person.page.url.removeprefix(person.base), "Model of", "model", 720)


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    with chromium() as browser, tempfile.TemporaryDirectory() as folder:
        for party, pages in ((labels_party, labels_pages), (features_party, features_pages)):
            within = Path(folder) / party.__name__
            within.mkdir()
            with party(within) as (base, key, _):
                person = Person(browser, base)
                person.sign_in(key)
                pages(person)
                person.close()
    for path in sorted(PICTURES.glob("*.png")):
        print(path)


if __name__ == "__main__":
    main()
