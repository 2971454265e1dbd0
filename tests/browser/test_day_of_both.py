"""A day of both parties in front of Chromium, against the two services as processes: from a request to a prediction."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from label_dp.documents.signing import VerifyingKey
from labels_party.bootstrap import bootstrap
from labels_party.settings import Settings
from tests.support.both_parties import AUDIENCE, two_services
from tests.support.browser import Person

pytestmark = pytest.mark.processes
ROWS = 3_000


def arranged(home: Path, features_key: Path) -> str:
    """The labels party vouches for the other's key of receipts; the key of an officer."""
    party = bootstrap(Settings(home=home))
    try:
        party.receipts.register(AUDIENCE, VerifyingKey.load(features_key), "command line")
        return party.apikeys.create("auditor", name="Ada Officer")[1]
    finally:
        party.close()


def test_from_a_request_to_a_prediction_and_back_to_who_has_what(browser: Any, tmp_path: Path) -> None:
    random = np.random.default_rng(7)
    ids = pa.array([f"click-{i:05d}" for i in range(ROWS)])
    age = random.integers(18, 80, ROWS)
    labels = np.clip(np.round(age / 4 + random.normal(0, 3, ROWS)), 0, 30)
    with two_services(tmp_path, ROWS) as (advertiser, publisher, access):
        owner = advertiser.owner
        owner.create_population("orders", "revenue", "0:30", "2", audiences=[AUDIENCE], four_eyes=True)
        batch = str(owner.open_batch("orders")["id"])
        table = publisher.upload(pa.table({"click_id": ids, "age": age}), "click_id")
        publisher.send_ids(table, batch)
        advertiser.send(batch, ids, labels, lambda _: None)
        owner.seal(batch)
        release = str(owner.release(batch, "1")["id"])

        officer = Person(browser, access.labels_url)
        officer.sign_in(arranged(tmp_path / "lp", access.features_key))
        officer.sees("Overview")
        officer.page.get_by_role("link", name="1 request waits for a second person").click()
        officer.sees("Approvals")
        officer.page.get_by_role("button", name="Approve, and charge ε 1").click()
        officer.sees("Approvals")
        officer.open(f"/releases/{release}", "Release")
        # the page follows the draw by itself
        officer.page.get_by_role("link", name="Open the statement").wait_for(timeout=60_000)

        publisher.pull(release)
        analyst = Person(browser, access.features_url)
        analyst.sign_in(access.trainer)
        analyst.sees("Inbox")
        assert release in analyst.page.locator("main").inner_text()
        training = publisher.order(table, release, "auto")
        analyst.open(f"/trainings/{training}", "Training")
        analyst.page.get_by_role("link", name="Open the model").click(timeout=120_000)
        analyst.sees("Model of revenue")
        analyst.page.get_by_role("link", name="Predict with it").click()
        analyst.page.get_by_role("textbox", name="age").fill("40")
        analyst.page.get_by_role("button", name="Predict").click()
        said = analyst.page.get_by_role("status").inner_text()
        assert 0 <= float(said.removeprefix("revenue: ").removesuffix(".")) <= 30

        officer.open(f"/given?audience={AUDIENCE}", "Who has what")
        row = officer.page.locator("tbody tr").inner_text()
        assert "Ada Officer" in row
        assert row.count(AUDIENCE) == 3  # who may read it, who fetched it, and who acknowledged it
        officer.open("/audit", "Audit")
        with officer.page.expect_download() as downloaded:
            officer.page.get_by_role("link", name="Signed export").click()
        export = tmp_path / "labels.dsse.json"
        downloaded.value.save_as(export)

        other = Person(browser, access.features_url)
        other.sign_in(access.auditor)
        other.open("/audit", "Audit")
        other.page.get_by_label("Audit export").set_input_files(export)
        other.page.get_by_role("button", name="Compare").click()
        other.sees("Comparison")
        assert "agree with the export of the labels party" in other.page.get_by_role("status").inner_text()
        for person in (officer, analyst, other):
            person.close()
