"""Traces by OpenTelemetry: a span for each request and each step, sent to the operator's own collector.

A span has its name, a route, a status and an outcome: no id, no feature, no label, no text of an error. Nothing of a
trace goes to a labels party.
"""

from __future__ import annotations

import contextlib
import time
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from features_party.telemetry.steps import REFUSED_NOT, Ended
from label_dp.errors import InvalidSettings
from label_dp.http.asgi import App, Message, Receive, Scope, Send, headers_of, method_of
from label_dp.installing import pip_install

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import SpanProcessor
    from opentelemetry.trace import Span, SpanContext

MOST_REMEMBERED = 1000
SILENT = ("/healthz", "/readyz", "/metrics")
BEGUN = "begun"  # member of a request's state for its span


@dataclass
class _Begun:
    """Time of a request's arrival, its span once there is one, and the status of its answer."""

    nanoseconds: int
    span: Span | None = None
    status: int = 0


class Traces:
    """Tracer: give `step` and `remember` to `Steps`. `close` sends the remaining spans."""

    def __init__(self, processor: SpanProcessor, version: str, revision: str) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.sampling import ALWAYS_ON

        named = {"service.name": "features-party", "service.version": version, "service.revision": revision}
        self._provider = TracerProvider(
            sampler=ALWAYS_ON,  # else a caller could opt out of our traces
            resource=Resource(named),
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(processor)
        self.tracer = self._provider.get_tracer("features-party")
        self._asked: OrderedDict[str, SpanContext] = OrderedDict()

    @classmethod
    def to(cls, endpoint: str, version: str, revision: str) -> Traces:
        """Send spans to `endpoint`/v1/traces in batches, from a thread. Raises InvalidSettings."""
        if find_spec("opentelemetry") is None or find_spec("opentelemetry.exporter") is None:
            raise InvalidSettings(f"FEATURES_PARTY_OTLP_ENDPOINT needs OpenTelemetry: {pip_install('otel')}.")
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        return cls(BatchSpanProcessor(OTLPSpanExporter(f"{endpoint.rstrip('/')}/v1/traces")), version, revision)

    @contextlib.contextmanager
    def step(self, name: str, key: str | None) -> Iterator[Ended]:
        """Open a span inside the current one, linked to the span that remembered `key`."""
        from opentelemetry.trace import Link, Status, StatusCode

        cause = None if key is None else self._asked.pop(key, None)
        links = [] if cause is None else [Link(cause)]
        with self.tracer.start_as_current_span(
            name,
            links=links,
            record_exception=False,  # its text may be anything
            set_status_on_exception=False,
        ) as span:

            def ended(outcome: str) -> None:
                span.set_attribute("outcome", outcome)
                if outcome not in REFUSED_NOT:
                    span.set_status(Status(StatusCode.ERROR))

            yield ended

    def request(self, method: str, parent: Context, nanoseconds: int) -> Span:
        """Start the span of a request that arrived at `nanoseconds`; the caller ends it."""
        from opentelemetry.trace import SpanKind

        return self.tracer.start_span(method, parent, SpanKind.SERVER, start_time=nanoseconds)

    def remember(self, key: str) -> None:
        """Remember the current span as the cause of the work `key` in another thread."""
        from opentelemetry.trace import get_current_span

        self._asked[key] = get_current_span().get_span_context()
        while len(self._asked) > MOST_REMEMBERED:
            self._asked.popitem(last=False)

    def close(self) -> None:
        self._provider.shutdown()


class Traced:
    """Middleware with a span for each request except probes. `Admitted` begins it once the caller is known; a request
    refused before gets its span afterwards, as the beginning of a trace of ours."""

    def __init__(self, app: App, traces: Traces) -> None:
        self.app, self.traces = app, traces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in SILENT:
            await self.app(scope, receive, send)
            return
        from opentelemetry.context import Context

        begun = scope.setdefault("state", {})[BEGUN] = _Begun(time.time_ns())

        async def noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                begun.status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, noted)
        finally:
            if begun.span is None:
                begun.span = self.traces.request(method_of(scope), Context(), begun.nanoseconds)
            call = scope.get("route") or scope["state"].get("call")  # a refused request has only the latter
            route, method = getattr(call, "path", "unknown"), method_of(scope)
            begun.span.update_name(f"{method} {route}")
            begun.span.set_attributes({"http.request.method": method, "http.route": route})
            if begun.status:
                begun.span.set_attribute("http.response.status_code", begun.status)
            begun.span.end()


class Admitted:
    """Middleware that begins the span of an admitted request, within the trace of its `traceparent` if it has an API
    key. Its `tracestate`, an arbitrary text, is dropped."""

    def __init__(self, app: App, traces: Traces) -> None:
        self.app, self.traces = app, traces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun: _Begun | None = scope.get("state", {}).get(BEGUN)
        if begun is None:
            await self.app(scope, receive, send)
            return
        from opentelemetry.context import Context
        from opentelemetry.trace import use_span
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        parent = Context()
        if scope["state"].get("caller") is not None:
            named = {"traceparent": headers_of(scope).get(b"traceparent", b"").decode("latin-1")}
            parent = TraceContextTextMapPropagator().extract(named, parent)
        begun.span = self.traces.request(method_of(scope), parent, begun.nanoseconds)
        with use_span(begun.span, record_exception=False, set_status_on_exception=False):
            await self.app(scope, receive, send)
