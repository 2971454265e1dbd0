"""REST application of both parties: middleware in the order in which a request meets it, docs and health.

Log line and id; handler of bugs; the call, the caller's key and role; bounded bodies; HEAD, OPTIONS and quick calls;
then the routes, which read JSON strictly and refuse with problem bodies.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any, get_origin

import sqlalchemy as sa
from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import HTMLResponse
from prometheus_client.registry import Collector
from pydantic import BaseModel
from starlette.datastructures import QueryParams
from starlette.middleware import Middleware
from starlette.responses import JSONResponse, Response
from starlette.staticfiles import StaticFiles

from label_dp.columnar.budget import DecodeBudget
from label_dp.errors import InvalidRequest, LabelDPError, Unavailable
from label_dp.http.asgi import App, Message, Receive, Scope, Send, allowed_methods
from label_dp.http.bodies import Bodies
from label_dp.http.calls import Call, Calls
from label_dp.http.front import Failures, Front, RequestLog
from label_dp.http.json_bodies import JsonRoute, quickly
from label_dp.http.metrics import install_metrics
from label_dp.http.observing import Look, ServiceMetrics
from label_dp.http.probes import Probes
from label_dp.http.rates import Rates
from label_dp.http.refusals import install_handlers, refusal
from label_dp.http.route_docs import problem_responses
from label_dp.http.threads import LOOKS
from label_dp.http.worker import Worker
from label_dp.logs import event


class Methods:
    """Middleware that answers HEAD as GET without the body, OPTIONS with the methods of a path, and quick calls."""

    def __init__(self, app: App, api: FastAPI) -> None:
        self.app, self.api = app, api

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        call: Call | None = scope.get("state", {}).get("call")
        method = scope.get("method")
        if method == "OPTIONS" and (methods := allowed_methods(self.api, scope)):
            await Response(status_code=204, headers={"Allow": ", ".join(methods)})(scope, receive, send)
        elif method == "HEAD":
            await self._head(scope, receive, send)
        elif call is not None and call.quick is not None and not scope["query_string"]:
            call.note(scope)
            try:
                response: Response = JSONResponse(await call.quick(Request(scope, receive)))
            except LabelDPError as error:
                response = refusal(error)
            await response(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _head(self, scope: Scope, receive: Receive, send: Send) -> None:
        answered = False

        async def headers_only(message: Message) -> None:
            nonlocal answered
            if message["type"] == "http.response.start":
                await send(message)
            elif message["type"] == "http.response.body":
                answered = True
                await send({"type": "http.response.body", "body": b""})
                raise OSError  # as for a caller who left: a large file need not be read, an event stream would not end

        inner = {**scope, "method": "GET", "extensions": {}}  # without zero-copy: the body is not sent
        try:
            await self.app(inner, receive, headers_only)
        except Exception:  # also as part of a group
            if not answered:
                raise
        finally:
            if "route" in inner:
                scope["route"] = inner["route"]  # for the log and the metrics


def _fields(dependant: Any) -> list[tuple[str, Any]]:
    """List (name, annotation) of each query parameter; a model's members count one by one."""
    fields = []
    for field in dependant.query_params:
        annotation = field.field_info.annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            fields += [(member.alias or name, member.annotation) for name, member in annotation.model_fields.items()]
        else:
            fields.append((field.alias, annotation))
    return fields + [field for inner in dependant.dependencies for field in _fields(inner)]


async def known_request(request: Request) -> None:
    """Refuse query parameters that the route does not know or that come twice; a dependency of every route below /v1.
    Raises InvalidRequest."""
    route = request.scope.get("route")
    dependant = getattr(route, "dependant", None)
    if dependant is None or not request.url.path.startswith("/v1/"):
        return
    _check_query(request.query_params, _fields(dependant))


def _check_query(query: QueryParams, fields: list[tuple[str, Any]]) -> None:
    many = {name: get_origin(annotation) in (list, tuple, set) for name, annotation in fields}
    for name in dict.fromkeys(query.keys()):
        if name not in many:
            label = name if len(name) <= 60 else name[:60] + "…"
            hint = f"the known ones are {', '.join(many)}" if many else "this call has none"
            raise InvalidRequest(
                f"The query parameter '{label}' is not known; {hint}.", [{"where": "query", "rule": "is not known"}]
            )
        if not many[name] and len(query.getlist(name)) > 1:
            raise InvalidRequest(
                f"The query parameter '{name}' was given more than once; give it once.",
                [{"where": f"query.{name}", "rule": "was given more than once"}],
            )


ASSETS = "docs-assets"


def install_docs(app: FastAPI) -> None:
    """Serve `/docs` with its script and style. Make `app` without `docs_url` and `redoc_url`: those load from a CDN."""
    app.mount(f"/{ASSETS}", StaticFiles(packages=[("fastapi_swagger", "resources")]), name="docs assets")

    @app.get("/docs", include_in_schema=False)
    def docs() -> HTMLResponse:
        # relative addresses: a proxy may serve the service below a path of its own
        return get_swagger_ui_html(
            openapi_url="openapi.json",
            title=f"{app.title} – calls",
            swagger_js_url=f"{ASSETS}/swagger-ui-bundle.js",
            swagger_css_url=f"{ASSETS}/swagger-ui.css",
            swagger_favicon_url=f"{ASSETS}/favicon-32x32.png",
            swagger_ui_parameters={"displayRequestDuration": True, "filter": True},
        )


log = logging.getLogger("label_dp")
VERSION = version("label-dp-service")  # read once from a file


class Health(BaseModel):
    """Health of the service."""

    status: str


def application(
    services: Any,
    routers: Iterable[APIRouter],
    *,
    title: str,
    summary: str,
    start: Callable[[], None],
    stop: Callable[[], None],
    workers: tuple[Worker, ...],
    look: Look,
    dead: str,
    silent: frozenset[str] = frozenset(),
    others: tuple[Collector, ...] = (),
    admitted: tuple[Middleware, ...] = (),
) -> FastAPI:
    """Build the REST service over `services`. `start` and `stop` run with it; it is ready while the first of its
    `workers` lives, and otherwise reports `dead`. Metrics show the figures of `look` and `others`. `admitted`
    middleware meets requests whose caller is known.

    Routes with the dependency UPLOAD accept bodies up to `max_body_bytes` of the settings' bounds, those with LARGE up
    to LARGE_BODY, all others up to SMALL_BODY. Routes in `silent` are neither logged nor counted (invariant
    charge-for-labels).
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.probes.loop = asyncio.get_running_loop()
        start()
        yield
        stop()
        log.info("stopped", extra=event("stopped"))

    app = FastAPI(title=title, version=VERSION, summary=summary, lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.services, app.state.apikeys, app.state.failures = services, services.apikeys, Failures()
    install_handlers(app)
    app.router.redirect_slashes = False
    app.router.route_class = JsonRoute
    app.router.dependencies.append(Depends(known_request))
    # the middleware added last runs first
    app.add_middleware(Methods, api=app)
    app.state.decoding = DecodeBudget(services.settings.decoding_memory_mb << 20)
    app.add_middleware(Bodies, bounds=services.settings.bounds, decoding=app.state.decoding)
    app.user_middleware[:0] = admitted
    rates = Rates(services.settings.calls_per_minute)
    calls = Calls(app)
    app.router.middleware_stack = calls.run
    app.add_middleware(Front, apikeys=services.apikeys, calls=calls, failures=app.state.failures, rates=rates)
    install_docs(app)
    collector = ServiceMetrics(services.settings, VERSION, services.database, look, workers)
    requests = install_metrics(app, here=not services.settings.metrics_port, others=(collector, *others))
    app.add_middleware(RequestLog, silent=silent, requests=requests)
    for router in routers:
        app.include_router(router)

    def ready() -> None:
        services.database.read("readyz", lambda c: c.execute(sa.select(1)).scalar())
        if services.settings.worker and not workers[0].alive():
            raise Unavailable(dead)

    app.state.probes = Probes(ready)

    async def healthy(_: Request) -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/healthz", tags=["service"])
    @quickly(healthy)
    async def healthz(request: Request) -> Health:
        """The process answers."""
        return Health(**await healthy(request))

    @app.get("/readyz", tags=["service"], responses=problem_responses(503))
    async def readyz() -> Health:
        """The database answers and the worker lives."""
        await LOOKS.run(ready)
        return Health(status="ready")

    return app
