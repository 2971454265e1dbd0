"""The application factory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

import sqlalchemy as sa
from fastapi import FastAPI

from labels_party.api import asking, audit, calibrations, daily, erasures, intake, plans, predictors, webhooks, work
from labels_party.api.models import Health
from labels_party.bootstrap import Services
from labels_party.work.kind import FAMILIES
from shared.errors import Unavailable
from shared.service.docs import install_docs
from shared.service.http import install
from shared.service.metrics import install_metrics

VERSION = version("label-dp-service")
DEPENDS_ON_LABELS = frozenset(
    {
        "/v1/batches/{batch}/labels",
        "/v1/batches/{batch}/examples",  # the owner is refused another list once there are labels
        "/v1/batches/{batch}/seal",
        "/v1/batches/{batch}/set-aside",
        "/v1/batches/{batch}/set-aside/{upload}",
        "/v1/batches/{batch}/purge",
        # these are refused before the batch has sealed, or afterwards, and whether it sealed by itself tells of labels
        "/v1/batches/{batch}",
        "/v1/batches/{batch}/releases",
        "/v1/batches/{batch}/calibrations",
        "/v1/batches/{batch}/calibration-allowance",
        "/v1/predictors",
        "/v1/populations/{population}/plan",
    }
)


def create_app(services: Services) -> FastAPI:
    """The REST service over `services`; its background worker starts and stops with it."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        if services.settings.worker:
            services.worker.start()
            services.sender.start()
        yield
        services.close()

    app = FastAPI(
        title="Labels party",
        version=VERSION,
        summary="Sensitive labels in, one signed, privatized message out, every ε accounted for.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    app.state.services = services
    kinds = [type(kind) for kind in services.work.kinds.values() if kind.schema is not None]
    silent = DEPENDS_ON_LABELS | {f"/v1{path}" for kind in kinds for path in asking.paths_of(kind)}
    install(app, services.apikeys, bounds=services.settings.bounds, silent=silent)
    install_docs(app)
    install_metrics(app, silent=silent)
    for part in (intake, plans, work, calibrations, predictors, erasures, daily, webhooks, audit):
        app.include_router(part.router)
    for family in FAMILIES:
        app.include_router(work.router_of(family))
    for kind in kinds:
        app.include_router(asking.router_of(kind))

    @app.get("/healthz", tags=["service"])
    async def healthz() -> Health:
        """The process answers."""
        return Health(status="ok")

    @app.get("/readyz", tags=["service"])
    def readyz() -> Health:
        """The database answers and the worker lives."""
        services.database.read("readyz", lambda c: c.execute(sa.select(1)).scalar())
        if services.settings.worker and not services.worker.alive():
            raise Unavailable("The release worker is not running; restart the service.")
        return Health(status="ready")

    return app
