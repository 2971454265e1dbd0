"""A publisher asks for sums by its own columns: by command and REST; charged once, within the owner's allowance."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.features_cli import Shell
from tests.support.labels import LabelsParty
from tests.support.serving import serving

pytestmark = pytest.mark.extended

N = 400
RNG = np.random.default_rng(4)
SITE = RNG.choice(["news", "games"], N).tolist()
LABEL = RNG.integers(0, 11, N).tolist()
IDS = [f"c-{i:03d}" for i in range(N)]
LABELS = pa.table({"example_id": IDS, "label": [float(label) for label in LABEL]})
STRANGERS = 100  # rows of the publisher that the batch lacks
TABLE = pa.table(
    {
        "click_id": [*IDS, *(f"s-{i}" for i in range(STRANGERS))],
        "site": [*SITE, *["games"] * STRANGERS],
        "hour": [i % 3 for i in range(N + STRANGERS)],
        "secret": ["never sent"] * (N + STRANGERS),
    }
)


@pytest.fixture(scope="module")
def advertiser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LabelsParty, str, str]]:
    """A labels party whose worker runs, its URL, and our key there."""
    with LabelsParty(tmp_path_factory.mktemp("labels") / "home") as party:
        key = party.services.apikeys.create("features", "features-party")[1]
        with serving(party.client().app) as url:
            yield party, url, key


@pytest.fixture
def shell(tmp_path_factory: pytest.TempPathFactory, advertiser: tuple[LabelsParty, str, str]) -> Shell:
    shell = Shell(tmp_path_factory.mktemp("shell"))
    shell.env["FEATURES_PARTY_LABELS_API_KEY"] = advertiser[2]
    shell.run("pin-key", advertiser[0].services.home.public_key)
    pq.write_table(TABLE, shell.folder / "features.parquet")
    return shell


def allowed(party: LabelsParty, name: str, epsilon: str | None = "60") -> str:
    batch = party.sealed_batch(LABELS, name, label=f"label of {name}", lifetime="100")
    if epsilon is not None:
        answer = party.client().put(f"/v1/batches/{batch}/sums-allowance", json={"epsilon": epsilon})
        assert answer.status_code == 200, answer.text
    return batch


def test_sums_come_back_by_one_command(shell: Shell, advertiser: tuple[LabelsParty, str, str]) -> None:
    party, url, _ = advertiser
    batch = allowed(party, "shop")
    ask = ("ask-sums", "--url", url, "--batch", batch, "--features", "features.parquet", "--id-column", "click_id")
    ask = (*ask, "--by", "site", "--by", "site,hour", "--epsilon", "40")
    told = shell.run(*ask).stdout
    assert f"{N + STRANGERS:,} rows sent" in told
    assert "receipts: " in told
    again = shell.json(*ask)
    assert (again["state"], again["fresh"], again["rows"]) == ("published", False, N + STRANGERS)
    assert party.spent(batch) == "40"  # the same table and terms: charged once
    columns, (site, _) = again["result"]["columns"], again["result"]["groupings"]
    assert [column["values"] for column in columns] == [["games", "news"], ["0", "1", "2"]]
    sums = {name: sum(y for y, of in zip(LABEL, SITE, strict=True) if of == name) for name in ("games", "news")}
    assert site["n"] == [SITE.count("games") + STRANGERS, SITE.count("news")]  # rows as sent: strangers add nothing
    assert [int(text) for text in site["sums"]] == pytest.approx([sums["games"], sums["news"]], abs=40)
    assert "never sent" not in str(again)


def test_an_audience_needs_an_allowance_and_stays_within(
    shell: Shell, advertiser: tuple[LabelsParty, str, str]
) -> None:
    party, url, _ = advertiser
    batch, unasked = allowed(party, "small", "0.5"), allowed(party, "unasked", None)
    ask = ("ask-sums", "--url", url, "--features", "features.parquet", "--id-column", "click_id", "--by", "site")
    for other in (unasked, "bat_none"):
        assert f"allow-sums {other} --epsilon E" in shell.refused(*ask, "--batch", other, "--epsilon", "0.1", code=1)
    assert "the owner allows ε 0.5" in shell.refused(*ask, "--batch", batch, "--epsilon", "0.6", code=1)
    assert "no column 'nothing'" in shell.refused(*ask, "--by", "nothing", "--batch", batch, "--epsilon", "0.1", code=2)
    assert party.spent(batch) == party.spent(unasked) == "0"


def body(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def sent(party: LabelsParty, batch: str, table: pa.Table, role: str, **changes: Any) -> Any:
    asked = {"epsilon": "1", "by": ["site"], "id_column": "click_id"} | changes
    headers = {"content-type": "application/vnd.apache.parquet"}
    path = f"/v1/batches/{batch}/sums-of-table"
    return party.client(role).post(path, params=asked, content=body(table), headers=headers)


def test_only_the_owner_is_told_of_unknown_ids(advertiser: tuple[LabelsParty, str, str]) -> None:
    party, _, _ = advertiser
    batch = allowed(party, "told")
    refused = sent(party, batch, TABLE, "owner")
    assert refused.status_code == 422
    assert "is not among the examples of the batch" in refused.text
    assert party.spent(batch) == "0"
    answers = [
        sent(party, batch, table, "features", additional_release=True).json()
        for table in (TABLE, TABLE.set_column(0, "click_id", pa.array([f"x-{i}" for i in range(len(TABLE))])))
    ]
    assert [answer["parameters"] for answer in answers] == [answers[0]["parameters"]] * 2
    assert answers[0].keys() == answers[1].keys()
    assert sent(party, batch, TABLE.slice(0, N), "owner", additional_release=True).status_code == 202


def test_a_table_of_another_form_is_refused(advertiser: tuple[LabelsParty, str, str]) -> None:
    party, _, _ = advertiser
    batch = allowed(party, "forms")
    twice = pa.concat_tables([TABLE.slice(0, 2), TABLE.slice(0, 1)])
    for table, changes, told in (
        (twice, {}, "click_id"),
        (TABLE, {"by": ["nothing"]}, "no column 'nothing'"),
        (TABLE, {"by": ["click_id"]}, "no column 'click_id'"),
    ):
        refused = sent(party, batch, table, "features", **changes)
        assert refused.status_code == 422, refused.text
        assert told in refused.text
    asked = {"epsilon": "1", "by": ["site"]}
    refused = party.client().post(f"/v1/batches/{batch}/sums-of-table", params=asked, json=[1])
    assert refused.status_code == 415
    assert party.spent(batch) == "0"
