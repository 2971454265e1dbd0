"""Prometheus metrics: requests by route and status; none depends on a label (invariant charge-for-labels)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import FastAPI, Response

if TYPE_CHECKING:
    from prometheus_client import Counter
    from prometheus_client.registry import Collector


def install_metrics(app: FastAPI, *, here: bool, others: tuple[Collector, ...] = ()) -> Counter:
    """Make the counter of requests of `app.state.metrics`, beside `others`; serve `/metrics` if `here`, that is without
    a port of its own. Durations are not exported: they could depend on labels."""
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
    for other in others:
        registry.register(other)
    app.state.metrics = registry
    if not here:
        return requests

    @app.get("/metrics", tags=["service"], response_class=Response)
    def metrics() -> Response:
        """Counters for Prometheus."""
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return requests
