"""Conversion events by both clients, in any form of a table."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from label_dp.errors import InvalidFile, InvalidInput, InvalidTable
from labels_party.client import AsyncLabelsPartyClient, LabelsPartyClient
from tests.support.events import EventShop, event, event_table
from tests.support.labels import LabelsParty


@pytest.fixture
def shop(party_on: LabelsParty) -> EventShop:
    return EventShop(party_on)


SENT = [event("a", 10, id="1"), event("b", 7), event("a", 2.5, id="1"), event("a", 1, event_type="refund")]
FORMS: dict[str, Callable[[Path], Any]] = {
    "objects": lambda _: iter(SENT),
    "table": lambda _: pa.Table.from_pylist(SENT),
    "reader": lambda _: pa.Table.from_pylist(SENT).to_reader(max_chunksize=3),
    "pandas": lambda _: importlib.import_module("pandas").DataFrame(SENT),
    "polars": lambda _: importlib.import_module("polars").DataFrame(SENT),
    "tables": lambda _: (pa.Table.from_pylist(SENT[i : i + 2]) for i in (0, 2)),
    "path": lambda folder: folder / "events.parquet",
    "name": lambda folder: str(folder / "events.parquet"),
}


WHEN = datetime(2026, 11, 20, tzinfo=UTC)
OF_THE_FULL_SET = ("pandas", "polars")  # packages that `make test` does without


@pytest.mark.parametrize(
    "form", [pytest.param(form, marks=[pytest.mark.extended] * (form in OF_THE_FULL_SET)) for form in FORMS]
)
def test_both_clients_send_events_in_any_form(shop: EventShop, tmp_path: Path, form: str) -> None:
    (tmp_path / "events.parquet").write_bytes(event_table(SENT))
    first, second = (shop.open(shop.population(name), ["a", "b"]) for name in ("first", "second"))
    app, (_, key) = shop.party.application, shop.party.services.apikeys.create("ingest")
    sent: list[int] = []
    with LabelsPartyClient("http://testserver", key, http=shop.sender, chunk_rows=3) as client:
        assert client.send_events(FORMS[form](tmp_path), progress=lambda count, _: sent.append(count)) == 4
    assert sent == ([2, 4] if form == "tables" else [3, 4])
    assert shop.sealed(first) == {"a": 1, "b": 7}

    async def talk() -> int:
        http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://testserver")
        async with AsyncLabelsPartyClient("http://testserver", key, http=http) as client:
            return await client.send_events(FORMS[form](tmp_path))

    more = shop.open(shop.population("more"), ["a", "b"])
    assert asyncio.run(talk()) == 4
    assert shop.sealed(more) == {"a": 1, "b": 7}
    assert shop.sealed(second) == {"a": 0, "b": 14}  # the refund has no id: it came twice


def test_what_a_client_cannot_send_is_one_sentence(shop: EventShop, tmp_path: Path) -> None:
    (tmp_path / "events.parquet").write_bytes(b"PAR1")
    with LabelsPartyClient("http://testserver", "key", http=shop.sender) as client:
        for name in ("events.parquet", "absent.parquet"):
            with pytest.raises(InvalidFile, match=f"{name}' cannot be read as a Parquet file"):
                client.send_events(tmp_path / name)
        with pytest.raises(InvalidTable, match="A table is an Arrow table"):
            client.send_events([1, 2])
        for value, why in ((float("nan"), "compliant"), (WHEN, "datetime")):
            with pytest.raises(InvalidInput, match=f"cannot be sent as JSON: .*{why}"):
                client.send_events([event("a", value)])
        assert client.send_events([]) == 0


def test_a_backends_decimals_are_numbers(shop: EventShop) -> None:
    batch = shop.open(shop.population(), ["a", "b"])
    _, key = shop.party.services.apikeys.create("ingest")
    with LabelsPartyClient("http://testserver", key, http=shop.sender) as client:
        client.send_events([event("a", Decimal("19.75")), event("a", Decimal("0.25"))])
    assert shop.sealed(batch) == {"a": 20, "b": 0}
