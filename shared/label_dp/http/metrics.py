"""Prometheus metrics: requests by route and status; none depends on a label (invariant charge-for-labels)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from fastapi import FastAPI, Response

if TYPE_CHECKING:
    from prometheus_client import Counter
    from prometheus_client.registry import Collector

SHARED = "PROMETHEUS_MULTIPROC_DIR"  # variable with the folder of counters of several processes


def install_metrics(app: FastAPI, *, here: bool, others: tuple[Collector, ...] = ()) -> Counter:
    """Make the counter of requests of `app.state.metrics`, beside `others`; serve `/metrics` if `here`, that is without
    a port of its own. Durations are not exported: they could depend on labels."""
    import prometheus_client as prometheus
    from prometheus_client.multiprocess import MultiProcessCollector

    prometheus.disable_created_metrics()  # type: ignore[no-untyped-call]  # times of first calls are useless
    registry = prometheus.CollectorRegistry()
    counted = None if SHARED in os.environ else registry
    if counted is None:  # counters are in files, and those of all processes are added up
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]  # the library's own
    says, of = "Requests by route, method and status.", ["route", "method", "status"]
    requests = prometheus.Counter("label_dp_requests_total", says, of, registry=counted)
    says = "Calls that were refused for their API key, by reason."
    app.state.failures.counter = prometheus.Counter("label_dp_refused_keys_total", says, ["reason"], registry=counted)
    for other in others:
        registry.register(other)
    app.state.metrics = registry
    if not here:
        return requests

    @app.get("/metrics", tags=["service"], response_class=Response)
    def metrics() -> Response:
        """Counters for Prometheus."""
        return Response(prometheus.generate_latest(registry), media_type=prometheus.CONTENT_TYPE_LATEST)

    return requests
