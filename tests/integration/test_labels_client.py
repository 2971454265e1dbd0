"""The advertiser's Python client, blocking and awaited, against a real connection and against failing ones."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest

from label_dp.errors import InvalidTable, Unavailable
from labels_party.client import AsyncLabelsPartyClient, LabelsPartyClient, RemoteProblem
from tests.support.labels import LabelsParty, label_table
from tests.support.serving import serving

pytestmark = pytest.mark.extended


@pytest.fixture
def service(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """(URL, owner key) of a labels party with a population 'shop'."""
    with LabelsParty(tmp_path) as party:
        app = party.client().app
        _, key = party.services.apikeys.create("owner", None)
        with serving(app) as url, LabelsPartyClient(url, key) as client:
            client.create_population("shop", label="revenue", domain="0:10", lifetime_epsilon="4", missing_label=0)
            yield url, key


def test_a_population_is_ensured_as_often_as_wanted(service: tuple[str, str]) -> None:
    rules = {"label": "revenue", "domain": "0:10", "lifetime_epsilon": "4", "missing_label": 0}
    with LabelsPartyClient(*service) as party:
        (there,) = party.populations()
        assert party.ensure_population("shop", **rules) == there
        assert party.ensure_population("shop", **rules | {"lifetime_epsilon": 4.0, "domain": "0:10:1"}) == there
        with pytest.raises(RemoteProblem, match=r"other rules \(lifetime epsilon, four eyes\)") as refused:
            party.ensure_population("shop", **rules | {"lifetime_epsilon": "5", "four_eyes": True})
        assert refused.value.status == 409
        with pytest.raises(RemoteProblem, match="exists already"):
            party.create_population("shop", **rules)
        made = party.ensure_population("another", **rules)
        assert party.ensure_population("another", **rules) == made
        assert len(party.populations()) == 2
        elsewhere = party.ensure_population("elsewhere", **rules, audiences=["other"])
        assert party.populations(audience="other") == [elsewhere]


def test_the_declared_unit_column_is_sent_where_nobody_names_another(service: tuple[str, str]) -> None:
    ids, people = ["a", "b", "c"], ["ann", "ann", "bob"]
    with LabelsPartyClient(*service) as party:
        units = {"unit_column": "who", "max_examples_per_unit": 1, "missing_label": 0}
        party.create_population("people", label="spent", domain="0:10", lifetime_epsilon="4", **units)
        batch = party.open_batch("people", presence="public")["id"]
        table = pa.table({"example_id": ids, "label": [1, 2, 3], "who": people, "note": ["x"] * 3})
        assert party.add_labels(batch, table) == 3
        assert party.seal(batch)["examples_beyond"] == 1
        listed = party.open_batch("people")["id"]
        party.put_examples(listed, pa.table({"example_id": ["d"], "who": ["eve"]}))
        plain = party.open_batch("shop", presence="public")["id"]
        assert party.add_labels(plain, table.rename_columns(["example_id", "label", "who", "note"])) == 3


def as_pandas(table: pa.Table) -> Any:
    return pytest.importorskip("pandas", reason="pandas is not installed").DataFrame(table.to_pydict())


def as_polars(table: pa.Table) -> Any:
    return pytest.importorskip("polars", reason="polars is not installed").DataFrame(table.to_pydict())


def as_reader(table: pa.Table) -> Any:
    return table.to_reader(max_chunksize=400)


def as_parts(table: pa.Table) -> Any:
    return (table.slice(start, 300) for start in range(0, table.num_rows, 300))


@pytest.mark.parametrize("given", [as_pandas, as_polars, as_reader, as_parts, lambda table: table])
def test_a_day_with_every_kind_of_table(service: tuple[str, str], given: Any) -> None:
    table = label_table(1000).rename_columns(["click", "euro"])
    steps: list[tuple[int, int | None]] = []
    with LabelsPartyClient(*service, chunk_rows=350) as party:
        batch = party.open_batch("shop", presence="public")["id"]
        sent = party.add_labels(
            batch, given(table), id_column="click", label_column="euro", progress=lambda n, of: steps.append((n, of))
        )
        assert sent == 1000
        assert steps[-1][0] == 1000
        assert len(steps) >= 3
        party.seal(batch)
        release = party.wait(party.release(batch, epsilon="1")["id"])
        assert release["state"] == "published"
        assert party.budget("shop")["epsilon_spent_at_most"] == "1"
        assert [b["examples"] for b in party.batches("shop")] == [1000]


def test_the_awaited_client_does_the_same(service: tuple[str, str]) -> None:
    async def day() -> tuple[int, str]:
        async with AsyncLabelsPartyClient(*service, chunk_rows=350) as party:
            batch = (await party.open_batch("shop", presence="public"))["id"]
            sent = await party.add_labels(batch, label_table(1000))
            await party.seal(batch)
            release = await party.wait((await party.release(batch, epsilon="1"))["id"])
            return sent, release["state"]

    assert asyncio.run(day()) == (1000, "published")


def test_late_conversions_and_refunds(service: tuple[str, str]) -> None:
    with LabelsPartyClient(*service) as party:
        batch = party.open_batch("shop", presence="public")["id"]
        party.add_labels(batch, label_table(100))
        with pytest.raises(RemoteProblem) as refused:
            party.add_labels(batch, label_table(1))
        assert refused.value.status == 409
        assert party.add_labels(batch, label_table(10, seed=1), mode="upsert") == 10
        party.delete_labels(batch, label_table(5))
        assert party.seal(batch)["examples"] == 100


def test_a_table_without_the_column_is_refused_before_anything_is_sent() -> None:
    def never(_: httpx.Request) -> httpx.Response:
        raise AssertionError("nothing should be sent")

    with (
        LabelsPartyClient("http://x", "k", http=httpx.Client(transport=httpx.MockTransport(never))) as party,
        pytest.raises(InvalidTable, match="exactly one column 'label'; it has 'example_id', 'euro'"),
    ):
        party.add_labels("bat_1", pa.table({"example_id": ["a"], "euro": [1.0]}))


@pytest.mark.parametrize("awaited", [False, True])
def test_every_try_of_a_call_has_one_key_and_every_call_another(awaited: bool) -> None:
    keys: list[str] = []

    def busy(request: httpx.Request) -> httpx.Response:
        keys.append(request.headers["idempotency-key"])
        if len(keys) % 3 == 1:
            raise httpx.ReadError("the answer was lost")
        if len(keys) % 3 == 2:
            body = {"code": "in-flight", "detail": "still working", "status": 409}
            return httpx.Response(409, json=body, headers={"Retry-After": "0"})
        return httpx.Response(200, json={"id": "bat_1"})

    async def twice() -> None:
        http = httpx.AsyncClient(transport=httpx.MockTransport(busy))
        async with AsyncLabelsPartyClient("http://x", "k", http=http) as party:
            await party.seal("bat_1")
            await party.seal("bat_1")

    if awaited:
        asyncio.run(twice())
    else:
        with LabelsPartyClient("http://x", "k", http=httpx.Client(transport=httpx.MockTransport(busy))) as party:
            party.seal("bat_1")
            party.seal("bat_1")
    assert len(keys) == 6
    assert len(set(keys[:3])) == len(set(keys[3:])) == 1
    assert keys[0] != keys[3]


def test_a_service_that_never_answers_is_unavailable_after_the_retries() -> None:
    calls = 0

    def down(_: httpx.Request) -> httpx.Response:
        nonlocal calls
        calls += 1
        raise httpx.ConnectError("refused")

    http = httpx.Client(transport=httpx.MockTransport(down))
    with (
        LabelsPartyClient("http://x", "k", retries=2, http=http) as party,
        pytest.raises(Unavailable, match="http://x"),
    ):
        party.populations()
    assert calls == 3


def test_names_are_quoted_in_paths() -> None:
    seen: list[bytes] = []

    def note(request: httpx.Request) -> httpx.Response:
        seen.append(request.url.raw_path)
        return httpx.Response(200, json={})

    with LabelsPartyClient("http://x", "k", http=httpx.Client(transport=httpx.MockTransport(note))) as party:
        party.population("a/b ü?")
    assert seen == [b"/v1/populations/a%2Fb%20%C3%BC%3F"]


def test_a_stream_is_never_held_as_a_whole(service: tuple[str, str]) -> None:
    alive = 0
    most = 0

    def parts() -> Iterator[pa.Table]:
        nonlocal alive, most
        for i in range(20):
            alive += 1
            most = max(most, alive)
            ids = [f"s{i}-{j}" for j in range(100)]
            yield pa.table({"example_id": ids, "label": np.zeros(100)})
            alive -= 1

    with LabelsPartyClient(*service) as party:
        batch = party.open_batch("shop", presence="public")["id"]
        assert party.add_labels(batch, parts()) == 2000
    assert most == 1
