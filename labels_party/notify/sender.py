"""Sender of the outbox's notices, in the background: a dead endpoint delays only its own notices.

Notices are delivered at least once, in any order. A failed try (no answer, or a status other than 2xx) is repeated
with growing, random pauses until a day after the event, then given up.
"""

from __future__ import annotations

import contextlib
import logging
import random
import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

import certifi
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from label_dp.documents.canonical import canonical_bytes
from label_dp.errors import InvalidInput
from label_dp.http.webhooks import sign_webhook
from label_dp.http.worker import Worker
from label_dp.logs import event, log_internal
from label_dp.store.database import Database
from labels_party.notify.addresses import AddressRules, WebhookTarget
from labels_party.notify.outbox import DELIVERED, GIVEN_UP, PENDING
from labels_party.notify.webhooks import MOST, Webhooks
from labels_party.storage.tables import deliveries, webhooks

if TYPE_CHECKING:
    from label_dp.client.budgets import Budget

log = logging.getLogger("label_dp.webhooks")

TIMEOUT_SECONDS = 10.0  # of a whole try
CLAIM_SECONDS = 60.0  # a claimed notice is tried again after this, if its sender died
FIRST_PAUSE, GROWTH, LONGEST_PAUSE = 5.0, 3.0, 4 * 3600.0
LIFE_SECONDS = 86_400.0
KEPT_DAYS = 30  # for which the outcome of a notice can be looked up
THREADS = MOST  # one per webhook: a slow endpoint delays no other
GONE = 410


def pause_after(attempts: int) -> float:
    """Return the seconds until the next try after `attempts` failed ones, randomised by ±25 %."""
    return min(LONGEST_PAUSE, FIRST_PAUSE * GROWTH ** min(attempts - 1, 30)) * random.uniform(0.75, 1.25)  # noqa: S311 - spreads retries


class Sender(Worker):
    """Worker with one thread that claims due notices and one per webhook that posts them; `flush` does one round in the
    caller's thread."""

    def __init__(
        self,
        database: Database,
        webhooks_: Webhooks,
        rules: AddressRules,
        clock: Callable[[], datetime],
        poll_seconds: float,
    ) -> None:
        super().__init__("webhook-sender", poll_seconds)
        self.database, self.webhooks, self.rules, self.clock = database, webhooks_, rules, clock
        self._busy: set[str] = set()  # webhooks with a try in flight: one at a time per webhook
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor

    @contextlib.contextmanager
    def session(self) -> Iterator[None]:
        with ThreadPoolExecutor(THREADS, thread_name_prefix="webhook") as self._pool:
            yield
            self._pool.shutdown(wait=True, cancel_futures=True)

    def round(self) -> bool:
        for notice in self._claim(THREADS):
            self._pool.submit(self._work, notice)
        return False

    def flush(self, only: str | None = None) -> int:
        """Try every due notice once, or only the notice `only`, in this thread; return how many were delivered."""
        delivered = 0
        for notice in self._claim(None, only):
            delivered += self._try(notice)
        return delivered

    # --- parts --------------------------------------------------------------------------------------------

    def _work(self, notice: dict[str, Any]) -> None:
        try:
            if not self.stopping():
                self._try(notice)
        except Exception as error:
            log_internal(log, f"webhook {notice['webhook']}", error, webhook=notice["webhook"])
        finally:
            with self._lock:
                self._busy.discard(notice["webhook"])
            self.wake()

    def _claim(self, most: int | None, only: str | None = None) -> list[dict[str, Any]]:
        """Claim due notices for CLAIM_SECONDS. With `most`, at most one per webhook, and none of busy webhooks."""
        now = self.clock().timestamp()
        t = deliveries
        # a time further away than any pause: the clock was set back
        due = sa.and_(
            t.c.state == PENDING, sa.or_(t.c.next_at <= now, t.c.next_at > now + LONGEST_PAUSE * 1.25 + CLAIM_SECONDS)
        )
        if only is not None:
            due = sa.and_(due, t.c.id == only)
        with self._lock:
            busy = set(self._busy)
        if not self.database.read("webhook.look", lambda c: c.execute(sa.select(t.c.id).where(due).limit(1)).first()):
            return []

        def claim(connection: Connection) -> list[dict[str, Any]]:
            query = sa.select(t, webhooks.c.url).join(webhooks, webhooks.c.id == t.c.webhook).where(due)
            if busy and most is not None:
                query = query.where(t.c.webhook.not_in(busy))
            claimed: list[dict[str, Any]] = []
            chosen_webhooks: set[str] = set()
            for row in connection.execute(query.order_by(t.c.next_at, t.c.id).limit(1000)).mappings():
                if most is not None and (row["webhook"] in chosen_webhooks or len(chosen_webhooks) >= most):
                    continue
                chosen_webhooks.add(row["webhook"])
                claimed.append(dict(row) | {"attempts": row["attempts"] + 1})
            for notice in claimed:
                values = {"attempts": notice["attempts"], "next_at": now + CLAIM_SECONDS}
                connection.execute(sa.update(t).where(t.c.id == notice["id"]).values(**values))
            return claimed

        claimed = self.database.write("webhook.claim", claim)
        if most is not None:
            with self._lock:
                self._busy |= {notice["webhook"] for notice in claimed}
        return claimed

    def _try(self, notice: dict[str, Any]) -> bool:
        failure, final = self._post(notice)
        now = self.clock().astimezone(UTC)
        values: dict[str, Any]
        if failure is None:
            values = {"state": DELIVERED, "delivered": now.strftime("%Y-%m-%dT%H:%M:%SZ"), "failure": None}
        else:
            next_at = now.timestamp() + pause_after(notice["attempts"])
            born = datetime.strptime(notice["created"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()
            over = final or next_at > born + LIFE_SECONDS
            values = {"state": GIVEN_UP if over else PENDING, "next_at": next_at, "failure": failure[:200]}
            ids = {"webhook": notice["webhook"], "notice": notice["id"]}
            record = event("notice-not-delivered", **ids, failure=failure)
            log.warning("webhook %s: notice %s not delivered (%s)", *ids.values(), failure, extra=record)
        t = deliveries
        statement = sa.update(t).where(t.c.id == notice["id"], t.c.state == PENDING).values(**values)
        limit = (now - timedelta(days=KEPT_DAYS)).strftime("%Y-%m-%dT%H:%M:%SZ")
        old = sa.delete(t).where(t.c.webhook == notice["webhook"], t.c.state != PENDING, t.c.created < limit)

        def keep(connection: Connection) -> None:
            connection.execute(statement)
            connection.execute(old)

        self.database.write("webhook.result", keep)
        return failure is None

    def _post(self, notice: dict[str, Any]) -> tuple[str | None, bool]:
        """Post a notice; return (failure, whether it is permanent). Of the answer only the status is stored."""
        import httpx  # imported here: every command loads this module

        from label_dp.client.budgets import Budget, Late

        body = canonical_bytes(notice["body"])
        try:
            target = self.rules.resolve(notice["url"])
        except InvalidInput as error:
            return error.detail, False
        except (OSError, UnicodeError):
            return "the host's name has no address", False
        timestamp = int(self.clock().timestamp())
        headers = sign_webhook(self.webhooks.secret(notice["webhook"]), notice["id"], timestamp, body)
        try:
            budget = Budget(TIMEOUT_SECONDS, stopping=self.stopping)
            status = _send(target, headers | {"Content-Type": "application/json"}, body, budget)
        except Late:
            return f"no whole answer within {TIMEOUT_SECONDS:g} s", False
        except httpx.HTTPError as error:
            return f"no answer ({type(error).__name__})", False
        if 200 <= status < 300:
            return None, False
        redirect = "; redirects are not followed" if 300 <= status < 400 else ""
        return f"the endpoint answered with status {status}{redirect}", status == GONE


def _trusted() -> ssl.SSLContext:
    """Return a context with the machine's certificate authorities (see SSL_CERT_FILE) and those of certifi."""
    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    return context


def _send(target: WebhookTarget, headers: dict[str, str], body: bytes, budget: Budget) -> int:
    """POST to the address that was checked, verifying the certificate of the host name; return the status."""
    import httpx

    from label_dp.client.transport import Transport

    parts = urlsplit(target.url)
    address = f"[{target.address}]" if ":" in target.address else target.address
    url = urlunsplit((parts.scheme, f"{address}:{target.port}", parts.path or "/", parts.query, ""))
    default = {"https": 443, "http": 80}[parts.scheme]
    name = f"[{target.host}]" if ":" in target.host else target.host
    host = name if target.port == default else f"{name}:{target.port}"
    trusted = _trusted() if parts.scheme == "https" else False  # without TLS there is no certificate to check
    # proxies of the environment would look up the name again
    transport = Transport(TIMEOUT_SECONDS, tls=trusted, within=budget, direct=True)
    with (
        httpx.Client(transport=transport, timeout=TIMEOUT_SECONDS, follow_redirects=False) as client,
        client.stream(
            "POST",
            url,
            content=body,
            headers={"Host": host, "User-Agent": "labels-party", **headers},
            extensions={"sni_hostname": target.host},
        ) as response,
    ):
        return response.status_code  # the body is not read
