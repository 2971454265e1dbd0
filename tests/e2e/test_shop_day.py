"""The day of a shop over HTTP: its backend's events become three label columns of one body of people, messages and a
model, and the officer's three questions are answered over the body."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest

from deploy.demo.clicks import DAY_SECONDS, DOMAIN, ID, LABEL, MIDNIGHT, generate
from deploy.demo.shop import Shop
from label_dp.documents.bundle import verify
from label_dp.documents.rows import read_message
from label_dp.documents.signing import VerifyingKey
from label_dp.domain import Domain
from label_dp.errors import RemoteProblem
from labels_party.client import LabelsPartyClient
from tests.support.both_parties import AUDIENCE, two_services
from tests.support.commands import command
from tests.support.events import oracle
from tests.support.two_people import TIMEOUT, Advertiser, Publisher

pytestmark = pytest.mark.processes

Json = dict[str, Any]
TODAY, TOMORROW = 5_000, 2_000  # clicks of two lists; a model of the first is tested on the second
PEOPLE, LIFETIME, SPENT, LEFT = "shop-customers", "6", "5.5", "0.5"
EVENTS = {"data_set_id": "shop-events", "types": {"purchase": "+", "refund": "-"}, "other_currency": "leave-out"}
WINDOW = {"window_days": 7, "currency": "EUR"}
# each label column: its domain, its rule, and the ε at which the publisher gets it
COLUMNS: dict[str, tuple[str, Json, str]] = {
    "converted": ("binary", EVENTS | {"take": "any"}, "1.25"),
    "orders": ("0:5", EVENTS | WINDOW | {"take": "count", "types": {"purchase": "+", "custom:gift": "+"}}, "1.25"),
    "value": (DOMAIN, EVENTS | WINDOW | {"take": "sum"}, "3"),
}
MORE = "3"  # ε of tomorrow's list in the first column: with the largest of the other columns more than the lifetime
# at this ε a message is the labels, for a check of made-up ones
OPEN, EXACT = "60", {"mechanism": "rr-on-bins", "prior": "uniform"}
VERIFIER = Path(__file__).parents[2] / "deploy" / "verify_standalone"


def fill(shop: Shop, clicks: pa.Table, times: dict[str, int]) -> None:
    """Fill the outbox with events of every kind, in any order."""
    rng = np.random.default_rng(33)
    chances, waits = rng.integers(0, 14, len(clicks)).tolist(), rng.integers(0, DAY_SECONDS, len(clicks)).tolist()
    for click, euros, chance, wait in zip(
        *(clicks[name].to_pylist() for name in (ID, LABEL)), chances, waits, strict=True
    ):
        cents, at = round(100 * euros), times[click] + wait
        if cents < 500:
            shop.emit(f"visit-{click}", "page_view", click, at)
            continue
        order = shop.sell(click, cents, at)
        match chance:
            case 0:
                shop.refund(order, cents // 3, at + DAY_SECONDS)
            case 1:
                shop.refund(order, cents, at + DAY_SECONDS)
            case 2:  # after the window
                shop.sell(click, cents, at + 7 * DAY_SECONDS)
            case 3:  # before the click
                shop.sell(click, cents, times[click] - 1)
            case 4:
                shop.sell(click, cents, at, mmt_only=True)
            case 5:  # sent again for want of an answer
                shop.outbox += shop.outbox[-1:] * 2
            case 6:  # a correction, which lacks the click
                shop.emit(order, "purchase", None, at, cents // 2)
            case 7:
                shop.sell(f"elsewhere-{click}", cents, at)
            case 8:
                shop.sell(None, cents, at)
            case 9:
                shop.sell(click, cents, at)
                shop.outbox[-1]["currency_code"] = "usd"
            case 10:
                shop.emit(f"gift-{click}", "custom", click, at)
                shop.outbox[-1]["custom_event"] = "gift"
            case 11:  # without ids they are two orders
                shop.sell(click, cents // 4, at)
                del shop.outbox[-1]["id"]
                shop.outbox += shop.outbox[-1:]
            case _:
                shop.sell(click, cents // 2, at + 60)
    rng.shuffle(shop.outbox)


def truth(column: str, records: list[Json], times: dict[str, int]) -> dict[str, float]:
    """The label of each click by a plain reading of the rule, as the domain holds it."""
    domain, rule, _ = COLUMNS[column]
    low, high = Domain.parse(domain).ends
    sums = oracle(records, rule, {**times})
    return {click: float(np.floor(np.clip(float(sums.get(click, 0)), low, high))) for click in times}


def key(folder: Path, *words: object) -> str:
    """A new API key of the labels party."""
    home = {"LABELS_PARTY_HOME": str(folder / "lp")}
    made = command("labels-party", "apikey", "create", "--role", *words, folder=folder, environment=home)
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


def open_batches(owner: LabelsPartyClient, audience: str, lifetime: str, **rules: Any) -> dict[str, str]:
    """Declare a population for each label column; an open batch of each."""
    batches = {}
    for column, (domain, events, _) in COLUMNS.items():
        name = f"{column} for {audience}"
        of_all = {"domain": domain, "events": events, "missing_label": 0}
        owner.create_population(name, name, lifetime_epsilon=lifetime, audiences=[audience], **of_all, **rules)
        batches[column] = str(owner.open_batch(name)["id"])
    return batches


def message_labels(folder: Path, release: str, audience: str) -> dict[str, float]:
    """The labels of a message, by id, as whole numbers."""
    (attempt,) = (folder / "lp" / "work" / release).iterdir()
    verified = verify(attempt, VerifyingKey.load(folder / "lp" / "keys" / "signing.pub"), audience)
    table = read_message(list(verified.paths), verified.manifest)
    return dict(zip(table["example_id"].to_pylist(), map(round, table["label"].to_pylist()), strict=True))


def check_counts(counts: Json, records: list[Json], labels: int) -> None:
    """Each record is in one number, and each kind was there."""
    ids = [record["id"] for record in records if "id" in record]
    assert (counts.pop("records"), counts.pop("examples")) == (len(records), labels)
    assert (counts["repeats"], sum(counts.values())) == (len(ids) - len(set(ids)), len(records))
    assert [name for name, count in counts.items() if not count] == ["without_value"]


def check_cap(advertiser: Advertiser, batch: str) -> None:
    """The population alone would allow it: its lifetime is as large as that of the body."""
    with pytest.raises(RemoteProblem) as error:
        advertiser.release(batch, "1", additional_release=True)
    assert (error.value.status, error.value.problem_code) == (403, "budget-exceeded")
    assert f"one example of the people '{PEOPLE}' has spent at most ε {SPENT} of its lifetime {LIFETIME}" in str(
        error.value
    )
    assert f"over all 3 label columns, so at most ε {LEFT} is left for this batch" in str(error.value)


def check_model(publisher: Publisher, table: str, release: str, later: pa.Table, labels: dict[str, float]) -> None:
    """The model beats the mean of the later clicks, which only who made them up knows."""
    model = publisher.wait(publisher.order(table, release, "auto"), lambda _s: None)
    true = np.array([labels[click] for click in later[ID].to_pylist()])
    error = np.mean((publisher.predict(model, later.drop_columns([ID, LABEL])) - true) ** 2)
    print(f"test MSE {error:,.0f}, of the mean {true.var():,.0f}")
    assert error < 0.8 * true.var()  # six draws had 0.59 to 0.61 of it


def check_officer(folder: Path, url: str, http: httpx.Client, releases: dict[str, tuple[str, str]]) -> None:
    """What has been spent on a person over all label columns, what is left, and who has what."""
    secret = key(folder, "auditor")
    auditor = LabelsPartyClient(url, secret, http=http)
    budget = auditor.people_budget(PEOPLE)
    # more than that is what the largest of each column add up to, which are of other clicks
    assert (budget["person"], budget["epsilon_spent_at_most"], budget["epsilon_left"]) == ("example", SPENT, LEFT)
    assert [row["epsilon_spent_at_most"] for row in budget["populations"]] == [MORE, "1.25", "3"]
    headers = {"Authorization": f"Bearer {secret}"}
    given = http.get(f"{url}/v1/given", params={"audience": AUDIENCE}, headers=headers).json()
    assert {row["id"]: (row["label"], row["epsilon"]) for row in given} == releases
    assert all(len(row["receipts"]) == 1 for row in given)
    page = " ".join(auditor.statement(next(iter(releases))).replace("&#39;", "'").split())
    spent = f"one example has spent at most {SPENT} of its lifetime ε {LIFETIME}"
    assert f"Over all 3 label columns of the people '{PEOPLE}' {spent}" in page
    export = folder / "audit.dsse.json"
    export.write_bytes(auditor.audit_export())
    words = [sys.executable, VERIFIER, "audit", export, "--key", folder / "lp" / "keys" / "signing.pub"]
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "VERIFIED"), done.stderr


def test_the_day_of_a_shop(tmp_path: Path) -> None:
    clicks = generate(TODAY + TOMORROW, 7, "clk")
    ids = clicks[ID].to_pylist()
    times = {click: MIDNIGHT + 12 * i for i, click in enumerate(ids)}
    lists = pa.table({ID: ids, "clicked": [times[click] for click in ids]})
    today, tomorrow = lists.slice(0, TODAY), lists.slice(TODAY)
    with two_services(tmp_path) as (advertiser, _, access), httpx.Client(timeout=TIMEOUT, trust_env=False) as http:
        receipts = ("--receipt-key", access.features_key)
        access = replace(access, reader=key(tmp_path, "features", "--audience", AUDIENCE, *receipts))
        owner, publisher = advertiser.owner, Publisher(access, http)
        reader = LabelsPartyClient(access.labels_url, access.reader, http=http)
        owner.create_people(PEOPLE, lifetime_epsilon=LIFETIME)
        columns, checks = open_batches(owner, AUDIENCE, LIFETIME, people=PEOPLE), open_batches(owner, "nobody", OPEN)
        others = {column: str(owner.open_batch(f"{column} for {AUDIENCE}")["id"]) for column in COLUMNS}

        shop = Shop("shop-events", {f"{access.labels_url}/v1/events": access.ingest}, http)
        fill(shop, clicks, times)
        records = [*shop.outbox]
        shop.outbox, evening = records[:TODAY], records[TODAY:]
        assert shop.deliver() == TODAY
        table = publisher.upload(clicks.slice(0, TODAY).drop_columns([LABEL]), ID)
        assert publisher.send_ids(table, columns["converted"]) == TODAY
        for batch, ids_of in ((checks["converted"], today), (others["converted"], tomorrow)):
            owner.put_examples(batch, ids_of, id_column=ID)
        for column in ("orders", "value"):  # the same ids, with their times
            reader.put_examples(columns[column], today, id_column=ID, time_column="clicked")
            owner.put_examples(checks[column], today, id_column=ID, time_column="clicked")
            reader.put_examples(others[column], tomorrow, id_column=ID, time_column="clicked")
        shop.outbox += evening
        assert shop.deliver() == len(evening)

        for batch in (*columns.values(), *checks.values(), *others.values()):
            owner.seal(batch)
        shop.sell(ids[0], 100, times[ids[0]])
        assert shop.deliver() == 1  # too late for any, and taken all the same
        sums = oracle(records, COLUMNS["value"][1], {click: times[click] for click in ids[:TODAY]})
        check_counts(owner.event_counts(columns["value"]), records, len(sums))
        for column, batch in checks.items():
            assert owner.event_counts(batch) == owner.event_counts(columns[column])
            labels, release = truth(column, records, times), advertiser.release(batch, OPEN, **EXACT)
            message = message_labels(tmp_path, str(release["id"]), "nobody")
            assert message == {click: labels[click] for click in ids[:TODAY]}

        releases = {}
        charges = [(column, columns[column], epsilon) for column, (_, _, epsilon) in COLUMNS.items()]
        for column, batch, epsilon in [("converted", others["converted"], MORE), *charges]:
            release_id = str(advertiser.release(batch, epsilon)["id"])
            releases[release_id] = f"{column} for {AUDIENCE}", epsilon
            assert publisher.pull(release_id)["epsilon"]["total"] == epsilon
        check_cap(advertiser, columns["converted"])
        check_model(publisher, table, release_id, clicks.slice(TODAY), truth("value", records, times))
        check_officer(tmp_path, access.labels_url, http, releases)
