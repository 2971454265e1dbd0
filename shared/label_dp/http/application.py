"""A REST service: the HTTP habits of both parties in the order in which a request meets them, its docs and its health.

Log line and id; a bug's last resort; bounded headers, the call that is meant, the caller's key and role; bounded
bodies; HEAD and OPTIONS; then the routes, which read JSON strictly, and whose refusals are problem bodies.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

import sqlalchemy as sa
from fastapi import APIRouter, Depends, FastAPI
from prometheus_client.registry import Collector
from pydantic import BaseModel
from starlette.middleware import Middleware

from label_dp.columnar.budget import Budget
from label_dp.errors import Unavailable
from label_dp.http.bodies import Bodies
from label_dp.http.calls import Calls
from label_dp.http.docs_page import install_docs
from label_dp.http.front import Failures, Front, LastResort, RequestLog
from label_dp.http.json_bodies import JsonRoute
from label_dp.http.methods import Methods, known_request
from label_dp.http.metrics import install_metrics
from label_dp.http.observing import Look, Observed
from label_dp.http.probes import Probes
from label_dp.http.rates import Rates
from label_dp.http.refusals import install_handlers
from label_dp.http.route_docs import problem_responses
from label_dp.http.threads import LOOKS
from label_dp.http.worker import Worker
from label_dp.logs import event

log = logging.getLogger("label_dp")
VERSION = version("label-dp-service")  # looked up once: it reads a file


class Health(BaseModel):
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
    """The REST service over `services`. `start` and `stop` go with it; it is ready while the first of its
    `workers` is alive, and otherwise says `dead`. Metrics show the figures that `look` reads, and `others`. `admitted`
    meet requests whose caller is known.

    Routes with the dependency UPLOAD take bodies up to `max_body_bytes` of the settings' bounds, those with LARGE up to
    LARGE_BODY, all others SMALL_BODY at most. Routes in `silent` have no line in the log and are not counted
    (invariant charge-for-labels).
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.probes.loop = asyncio.get_running_loop()
        start()
        yield
        stop()
        log.info("stopped", extra=event("stopped"))

    app = FastAPI(
        title=title,
        version=VERSION,
        summary=summary,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    app.state.services, app.state.apikeys, app.state.failures = services, services.apikeys, Failures()
    install_handlers(app)
    app.router.redirect_slashes = False
    app.router.route_class = JsonRoute
    app.router.dependencies.append(Depends(known_request))
    # the last one added is met first
    app.add_middleware(Methods, api=app)
    app.state.decoding = Budget(services.settings.decoding_memory_mb << 20)
    app.add_middleware(Bodies, bounds=services.settings.bounds, decoding=app.state.decoding)
    app.user_middleware[:0] = admitted
    rates = Rates(services.settings.calls_per_minute)
    app.add_middleware(Front, apikeys=services.apikeys, calls=Calls(app), failures=app.state.failures, rates=rates)
    app.add_middleware(LastResort)
    app.add_middleware(RequestLog, silent=silent)
    install_docs(app)
    observed = Observed(services.settings, VERSION, services.database, look, workers)
    install_metrics(app, here=not services.settings.metrics_port, silent=silent, others=(observed, *others))
    for router in routers:
        app.include_router(router)

    def ready() -> None:
        services.database.read("readyz", lambda c: c.execute(sa.select(1)).scalar())
        if services.settings.worker and not workers[0].alive():
            raise Unavailable(dead)

    app.state.probes = Probes(ready)

    @app.get("/healthz", tags=["service"])
    async def healthz() -> Health:
        """The process answers."""
        return Health(status="ok")

    @app.get("/readyz", tags=["service"], responses=problem_responses(503))
    async def readyz() -> Health:
        """The database answers and the worker lives."""
        await LOOKS.run(ready)
        return Health(status="ready")

    return app
