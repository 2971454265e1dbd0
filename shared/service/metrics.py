"""Prometheus metrics: requests by route and status, and nothing that depends on a label (invariant 1)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import FastAPI, Request, Response


def install_metrics(app: FastAPI, *, silent: frozenset[str] = frozenset()) -> None:
    """Count requests and serve `/metrics`. Durations are not exported: they could depend on labels.

    Routes in `silent` are not counted: how many there were, and how they ended, depends on labels.
    """
    from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, generate_latest

    registry = CollectorRegistry()
    requests = Counter(
        "label_dp_requests_total",
        "Requests by route, method and status.",
        ["route", "method", "status"],
        registry=registry,
    )

    @app.middleware("http")
    async def count(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        response = await call_next(request)
        route = getattr(request.scope.get("route"), "path", "unknown")
        if route in silent:
            return response
        # the template, never the path: ids do not belong into metrics, and unknown paths would be unbounded
        requests.labels(route, request.method, str(response.status_code)).inc()
        return response

    @app.get("/metrics", tags=["service"], response_class=Response)
    def metrics() -> Response:
        """Counters for Prometheus."""
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)
