"""A made-up shop's backend: what becomes of its orders goes out as events of the Event & Conversion API 1.0.

A shop that sends conversions to advertising platforms has such code. A labels party is one more URL in `receivers`.
"""

from __future__ import annotations

import json
from typing import Any

import httpx

from label_dp.errors import Unavailable

AT_ONCE = 5_000  # events of a call


class Shop:
    """Orders, each with the click that led to it, and the events that wait to be sent. `receivers`: URLs and API keys
    of whoever takes them."""

    def __init__(self, data_set: str, receivers: dict[str, str], http: httpx.Client) -> None:
        self.data_set, self.receivers, self.http = data_set, receivers, http
        self.orders: dict[str, str | None] = {}
        self.outbox: list[dict[str, Any]] = []
        self.refunds = 0

    def sell(self, click: str | None, cents: int, second: int, **user_data: Any) -> str:
        """Take an order of somebody who came by `click`; return its number."""
        order = f"order-{len(self.orders) + 1}"
        self.orders[order] = click
        self.emit(order, "purchase", click, second, cents, **user_data)
        return order

    def refund(self, order: str, cents: int, second: int) -> None:
        """Give an order's money back, or a part of it."""
        self.refunds += 1
        self.emit(f"refund-{self.refunds}", "refund", self.orders[order], second, cents)

    def emit(
        self, name: str, kind: str, click: str | None, second: int, cents: int | None = None, **user_data: Any
    ) -> None:
        """Put an event into the outbox. Two of one name are records of one event, and the later one corrects it."""
        event: dict[str, Any] = {"data_set_id": self.data_set, "id": name, "timestamp": second, "event_type": kind}
        if cents is not None:
            event |= {"value": cents / 100, "currency_code": "EUR"}
        self.outbox.append(event | {"user_data": user_data if click is None else {"click_id": click, **user_data}})

    def deliver(self) -> int:
        """Send what waits; return how many events. What was not sent still waits, and may go out twice: it counts once.
        Raises Unavailable."""
        count = len(self.outbox)
        while waiting := self.outbox[:AT_ONCE]:
            lines = "".join(json.dumps(event) + "\n" for event in waiting)
            for url, key in self.receivers.items():
                headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/x-ndjson"}
                try:
                    answer = self.http.post(url, content=lines, headers=headers)
                except httpx.TransportError as error:
                    raise Unavailable(f"{url} cannot be reached ({error}); deliver the events again.") from None
                if answer.status_code != 200:
                    raise Unavailable(f"{url} answered {answer.status_code} and took no event: {answer.text[:500]}")
            del self.outbox[:AT_ONCE]
        return count
