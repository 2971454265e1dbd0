"""Conversion events of tests, and what becomes of them by a plain reading of the rule."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from fastapi.testclient import TestClient
from httpx import Response

from tests.support.labels import LabelsParty

DATA_SET = "shop-orders"
SECOND, DAY = 1_746_558_464, 86_400
RULE = {"data_set_id": DATA_SET, "types": {"purchase": "+", "refund": "-"}, "take": "sum", "currency": "EUR"}


def event(click: str | None, value: float | None = None, **members: Any) -> dict[str, Any]:
    """A core event object; `members` replace or add to its own."""
    core: dict[str, Any] = {"data_set_id": DATA_SET, "timestamp": SECOND, "event_type": "purchase"}
    if value is not None:
        core |= {"value": value, "currency_code": "EUR"}
    if click is not None:
        core["user_data"] = {"click_id": click}
    return core | members


def event_table(events: Sequence[Mapping[str, Any]], **options: Any) -> bytes:
    """Events as Parquet with struct columns; `options` of its writer."""
    sink, names = io.BytesIO(), dict.fromkeys(name for one in events for name in one)
    pq.write_table(pa.table({name: [one.get(name) for one in events] for name in names}), sink, **options)
    return sink.getvalue()


class EventShop:
    """Populations of one data set, batches of them, and what they hold."""

    def __init__(self, party: LabelsParty) -> None:
        self.party, self.owner, self.sender = party, party.client("owner"), party.client("ingest")

    def population(self, name: str = "shop", domain: str = "0:100", **rule: Any) -> str:
        """Declare a population of the data set; its id."""
        body = {"name": name, "label": name, "domain": domain, "lifetime_epsilon": "3", "missing_label": 0}
        answer = self.owner.post("/v1/populations", json=body | {"events": RULE | rule})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def open(self, population: str, ids: Sequence[str] = (), times: Mapping[str, int] | None = None) -> str:
        """Open a batch, and list its examples if there are any; its id."""
        batch = str(self.owner.post(f"/v1/populations/{population}/batches", json={}).json()["id"])
        if ids:
            self.list(batch, ids, times)
        return batch

    def list(self, batch: str, ids: Sequence[str], times: Mapping[str, int] | None = None) -> None:
        body: dict[str, Any] = {"example_id": list(ids)} | ({} if times is None else {"time": [times[i] for i in ids]})
        answer = self.owner.put(f"/v1/batches/{batch}/examples", json=body)
        assert answer.status_code == 200, answer.text

    def send(self, *events: dict[str, Any], client: TestClient | None = None) -> None:
        answer = (client or self.sender).post("/v1/events", json=list(events))
        assert (answer.status_code, answer.json()) == (200, {"accepted": len(events)}), answer.text

    def send_table(self, content: bytes) -> Response:
        headers = {"content-type": "application/vnd.apache.parquet"}
        return self.sender.post("/v1/events", content=content, headers=headers)

    def sealed(self, batch: str) -> dict[str, int]:
        """Seal a batch; the domain positions of its labels by id."""
        answer = self.owner.post(f"/v1/batches/{batch}/seal")
        assert answer.status_code == 200, answer.text
        return self.party.sealed_positions(batch)

    def counts(self, batch: str) -> dict[str, int]:
        """What became of the events, without the rules that left none out."""
        answer = self.owner.get(f"/v1/batches/{batch}/events")
        assert answer.status_code == 200, answer.text
        return {name: count for name, count in answer.json().items() if count}


def oracle(
    records: Sequence[Mapping[str, Any]], rule: Mapping[str, Any], times: Mapping[str, int | None]
) -> dict[str, Decimal]:
    """The label of each listed example (with its time) that has one: records in order of arrival, one by one."""
    events: dict[Any, dict[str, Any]] = {}
    for number, record in enumerate(records):
        name = record.get("id")
        merged = events.setdefault(("own", number) if name is None else ("id", str(name)), {})
        user = record.get("user_data") or {}
        flat = {
            "time": record["timestamp"],
            "type": record["event_type"] if record["event_type"] != "custom" else "custom:" + record["custom_event"],
            "example": user.get("click_id"),
            "mmt_only": user.get("mmt_only"),
        }
        if record.get("value") is not None:
            flat |= {"value": record["value"], "currency": record["currency_code"].upper()}
        merged |= {member: value for member, value in flat.items() if value is not None}
    labels: dict[str, Decimal] = {}
    kept: dict[str, list[tuple[int, Decimal, int]]] = {}
    of_values = rule["take"] not in ("any", "count")
    for one in events.values():
        sign = {"+": 1, "-": -1, None: 0}[rule["types"].get(one["type"])]
        example = one.get("example")
        if not sign or example not in times:
            continue
        if one.get("mmt_only") and rule.get("mmt_only", "leave-out") == "leave-out":
            continue
        if of_values and (one.get("value") is None or one["currency"] != rule["currency"]):
            continue
        start, days = times[example], rule.get("window_days")
        if days is not None and start is not None and not start <= one["time"] < start + days * DAY:
            continue
        value = Decimal(str(one["value"] if one.get("value") is not None else 0))
        amount = -abs(value) if sign < 0 else value
        kept.setdefault(example, []).append((one["time"], amount, sign))
    for example, parts in kept.items():
        amounts = [amount for _, amount, _ in parts]
        balance = sum(sign for _, _, sign in parts)
        first, last = min(time for time, _, _ in parts), max(time for time, _, _ in parts)
        labels[example] = {
            "any": Decimal(balance > 0),
            "count": Decimal(balance),
            "sum": sum(amounts, Decimal(0)),
            "max": max(amounts),
            "first": max(amount for time, amount, _ in parts if time == first),
            "last": max(amount for time, amount, _ in parts if time == last),
        }[rule["take"]]
    return labels
