"""Front of a service: a request's id, its log line, its headers and its caller, before any route."""

from __future__ import annotations

import logging
import random
import re
import time
from http import HTTPStatus
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Any

from label_dp.errors import LabelDPError, TooManyCalls, Unauthenticated
from label_dp.http.asgi import App, Message, Receive, Scope, Send, headers_of, method_of
from label_dp.http.calls import Calls, refuse_other_roles
from label_dp.http.gathered import Gathered
from label_dp.http.rates import Rates
from label_dp.http.refusals import refusal, respond
from label_dp.http.threads import LOOKS
from label_dp.logs import Sparse, access, coarse_milliseconds, event, log_internal, request_id
from label_dp.problems import http_problem
from label_dp.store.apikeys import ApiKeys, Principal, is_signed

if TYPE_CHECKING:
    from prometheus_client import Counter

log = logging.getLogger("label_dp.http")

GIVEN_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
IPV6 = 6
PROBES = ("/healthz", "/readyz", "/metrics")


class RequestLog:
    """Middleware that gives each request an id: a valid `X-Request-ID` of the caller, or a new one. It writes a line in
    `label_dp.access` and counts in `requests`, but not for routes in `silent`: their number, outcomes and durations
    depend on labels. Of a bug it logs the kind alone: texts and tracebacks may hold labels."""

    def __init__(self, app: App, silent: frozenset[str], requests: Counter) -> None:
        self.app, self.silent, self.requests = app, silent, requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        http, start, status = scope["type"] == "http", time.monotonic(), 0
        header = headers_of(scope).get(b"x-request-id", b"").decode("latin-1") if http else ""
        identifier = header if GIVEN_ID.fullmatch(header) else f"{random.getrandbits(64):016x}"
        request_id.set(identifier)

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", identifier.encode())]
            await send(message)

        try:
            await self.app(scope, receive, noted)
        except Exception as error:
            route = getattr(scope.get("route"), "path", "unknown")
            log_internal(log, f"a call of {route}", error, route=route)
            if http and not status:
                detail = "The service failed; its log names the kind of failure."
                await respond(500, http_problem(500, "internal", "Internal error", detail))(scope, receive, noted)
        finally:
            if http:
                self._line(scope, identifier, status, time.monotonic() - start)

    def _line(self, scope: Scope, identifier: str, status: int, seconds: float) -> None:
        # the template, not the path: neither holds ids, and unknown paths are unbounded and may be anything
        route, method = getattr(scope.get("route"), "path", "unknown"), method_of(scope)
        if route in self.silent:
            return
        if status:
            self.requests.labels(route, method, str(status)).inc()
        if route in PROBES and status < HTTPStatus.BAD_REQUEST:
            return
        caller = scope.get("state", {}).get("caller")
        fields: dict[str, Any] = {
            "method": method,
            "route": route,
            "status": status or "aborted",
            "milliseconds": coarse_milliseconds(seconds),
            "key": caller.key_id if caller is not None else "-",
            "request_id": identifier,
        }
        text = "{method} {route} {status} {milliseconds}ms key={key} request={request_id}".format(**fields)
        access.info(text, extra=event("request", **fields))


class Failures:
    """Log of callers without a valid key, by bearer token or at the sign-in: counted, and logged once a minute per key,
    or per address if the key is unknown."""

    def __init__(self) -> None:
        self.seen = Sparse()
        self.counter: Counter | None = None  # by reason, for alerts

    def _count(self, reason: str) -> None:
        if self.counter is not None:
            self.counter.labels(reason).inc()

    def note_rate(self, key_id: str) -> None:
        """Record a key that calls more often than it may."""
        self._count("too many calls")
        count = self.seen.due(f"too many calls {key_id}")
        if count:
            fields = {"reason": "too many calls", "key": key_id, "failures": count}
            extra = event("key-too-often", **fields)
            access.warning("key %s calls too often, %d times since the last such line", key_id, count, extra=extra)

    def note(self, error: Unauthenticated, scope: Scope) -> None:
        self._count(error.reason)
        address = address_of(scope)
        who = f"key {error.key_id}" if error.key_id else f"address {address}"
        count = self.seen.due(f"{error.reason} {who}")
        if count:
            fields = {"reason": error.reason, "key": error.key_id or "-", "address": address, "failures": count}
            access.warning(
                "authentication failed (%s) from %s, %s, %d times since the last such line",
                error.reason, address, who, count, extra=event("key-refused", **fields),
            )  # fmt: skip


class Front:
    """Middleware that drops one trailing slash, finds the call, and below /v1 refuses callers without a valid key or
    with another role.

    It reads no byte of a refused call's body, nor of one for an unknown path or method.
    """

    def __init__(self, app: App, apikeys: ApiKeys, calls: Calls, failures: Failures, rates: Rates) -> None:
        self.app, self.calls, self.failures, self.rates = app, calls, failures, rates
        self.callers = Gathered[str | None, Principal](lambda _, secrets: apikeys.authenticate_all(secrets))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if len(scope["path"]) > 1 and scope["path"].endswith("/"):
            scope["path"] = scope["path"].removesuffix("/")
        call = self.calls.find(scope)
        scope.setdefault("state", {})["call"] = call
        if scope["path"].startswith("/v1/"):
            try:
                token = bearer_of(scope)
                # apart: no API key waits while an issuer's keys are fetched
                caller = await self.callers.do(is_signed(token or ""), token, LOOKS.limiter())
                scope["state"]["caller"] = caller
                self.rates.take(caller.key_id)
                if call is not None and call.roles is not None:
                    refuse_other_roles(caller, call.roles)
            except LabelDPError as error:
                if isinstance(error, Unauthenticated):
                    self.failures.note(error, scope)
                elif isinstance(error, TooManyCalls):
                    self.failures.note_rate(scope["state"]["caller"].key_id)
                await refusal(error)(scope, receive, send)
                return
        await self.app(scope, receive, send)


def address_of(scope: Scope) -> str:
    """Return the caller's address, for IPv6 the network of 64 bits, which one caller may own; "unknown" if a proxy sent
    no address."""
    try:
        address = ip_address((scope.get("client") or ("",))[0])
    except ValueError:
        return "unknown"
    return str(ip_network((address, 64), strict=False)) if address.version == IPV6 else str(address)


def bearer_of(scope: Scope) -> str | None:
    """Return the bearer token of a request; None without one."""
    scheme, _, secret = headers_of(scope).get(b"authorization", b"").decode("latin-1").partition(" ")
    return secret.strip() if scheme.lower() == "bearer" else None
