"""The application factory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

import sqlalchemy as sa
from fastapi import FastAPI

from labels_party.api import (
    answers,
    approvals,
    audit,
    calibrations,
    daily,
    erasures,
    intake,
    listing,
    medians,
    own_features,
    predictors,
    receipts,
    releases,
    webhooks,
)
from labels_party.api.models import Health
from labels_party.bootstrap import Services
from shared.errors import Unavailable
from shared.service.docs import install_docs
from shared.service.http import install
from shared.service.metrics import install_metrics

UPLOADS = ("/v1/batches/[^/]+/(labels|examples|calibrations|features)",)
DEPENDS_ON_LABELS = frozenset(
    {
        "/v1/batches/{batch}/labels",
        "/v1/batches/{batch}/examples",  # the owner is refused another list once there are labels
        "/v1/batches/{batch}/seal",
        "/v1/batches/{batch}/purge",
        # these are refused before the batch has sealed, or afterwards, and whether it sealed by itself tells of labels
        "/v1/batches/{batch}",
        "/v1/batches/{batch}/releases",
        "/v1/batches/{batch}/calibrations",
        "/v1/batches/{batch}/calibration-allowance",
        "/v1/batches/{batch}/medians",
        *(f"/v1/batches/{{batch}}/{kind}{plan}" for kind in ("rectangles", "linear-models") for plan in ("", "/plan")),
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
        version=version("label-dp-service"),
        summary="Sensitive labels in, one signed, privatized message out, every ε accounted for.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    app.state.services = services
    install(app, services.apikeys, bounds=services.settings.bounds, uploads=UPLOADS, silent=DEPENDS_ON_LABELS)
    install_docs(app)
    install_metrics(app, silent=DEPENDS_ON_LABELS)
    for part in (
        intake,
        listing,
        releases,
        answers,
        calibrations,
        medians,
        own_features,
        predictors,
        receipts,
        approvals,
        erasures,
        daily,
        webhooks,
        audit,
    ):
        app.include_router(part.router)

    @app.get("/healthz", tags=["service"])
    def healthz() -> Health:
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
