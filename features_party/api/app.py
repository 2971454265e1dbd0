"""The application factory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

import sqlalchemy as sa
from fastapi import FastAPI

from features_party.api import audit, models, received, tables, trainings
from features_party.api.events import Streams
from features_party.api.schemas import Health
from features_party.bootstrap import Services
from features_party.models.worker import Worker
from shared.errors import Unavailable
from shared.service.docs import install_docs
from shared.service.http import install, problem_responses
from shared.service.metrics import install_metrics

VERSION = version("label-dp-service")


def create_app(services: Services) -> FastAPI:
    """The REST service over `services`; its background worker starts and stops with it."""
    worker = Worker(services.trainings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        services.home.sweep()
        if services.settings.worker:
            worker.start()
        yield
        worker.stop()
        services.close()

    app = FastAPI(
        title="Features party",
        version=VERSION,
        summary="Privatized messages in, every ε accounted for, models out.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    app.state.services = services
    app.state.worker = worker
    app.state.stopping = lambda: False  # whoever serves it knows better
    app.state.streams = Streams(lambda: app.state.stopping())
    install(app, services.apikeys, bounds=services.settings.bounds)
    install_docs(app)
    install_metrics(app)
    for router in (tables.router, received.messages, received.answers, trainings.router, models.router, audit.router):
        app.include_router(router)

    @app.get("/healthz", tags=["service"])
    async def healthz() -> Health:
        """The process answers."""
        return Health(status="ok")

    @app.get("/readyz", tags=["service"], responses=problem_responses(503))
    def readyz() -> Health:
        """The database answers and the worker lives."""
        services.database.read("readyz", lambda c: c.execute(sa.select(1)).scalar())
        if services.settings.worker and not worker.alive():
            raise Unavailable("The training worker is not running; restart the service.")
        return Health(status="ready")

    return app
