"""Prometheus metrics: requests by route and status; none depends on a label (invariant charge-for-labels)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import FastAPI, Response

from label_dp.http.asgi import App, Message, Receive, Scope, Send, method_of

if TYPE_CHECKING:
    from prometheus_client import Counter
    from prometheus_client.registry import Collector


class CountRequests:
    """Middleware that counts requests by route template, method and status, except for routes in `silent`."""

    def __init__(self, app: App, requests: Counter, silent: frozenset[str]) -> None:
        self.app, self.requests, self.silent = app, requests, silent

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        method, status = method_of(scope), 0

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        await self.app(scope, receive, noted)
        # the template, not the path: metrics hold no ids, and unknown paths are unbounded
        route = getattr(scope.get("route"), "path", "unknown")
        if status and route not in self.silent:
            self.requests.labels(route, method, str(status)).inc()


def install_metrics(
    app: FastAPI, *, here: bool, silent: frozenset[str] = frozenset(), others: tuple[Collector, ...] = ()
) -> None:
    """Count requests into `app.state.metrics`, beside `others`; serve `/metrics` if `here`, that is without a port of
    its own. Durations are not exported, and routes in `silent` not counted: they could depend on labels."""
    from prometheus_client import (
        CONTENT_TYPE_LATEST,
        CollectorRegistry,
        Counter,
        disable_created_metrics,
        generate_latest,
    )

    disable_created_metrics()  # type: ignore[no-untyped-call]  # times of first calls are useless

    registry = CollectorRegistry()
    requests = Counter(
        "label_dp_requests_total",
        "Requests by route, method and status.",
        ["route", "method", "status"],
        registry=registry,
    )
    app.state.failures.counter = Counter(
        "label_dp_refused_keys_total",
        "Calls that were refused for their API key, by reason.",
        ["reason"],
        registry=registry,
    )
    app.add_middleware(CountRequests, requests=requests, silent=silent)
    for other in others:
        registry.register(other)
    app.state.metrics = registry
    if not here:
        return

    @app.get("/metrics", tags=["service"], response_class=Response)
    def metrics() -> Response:
        """Counters for Prometheus."""
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)
