"""The application of the features party."""

from __future__ import annotations

from fastapi import FastAPI

from features_party.api import audit, models, received, tables, trainings
from features_party.api.events import Streams
from features_party.bootstrap import Services
from features_party.models.worker import Worker
from shared.service.application import application


def create_app(services: Services) -> FastAPI:
    """The REST service over `services`; its background worker starts and stops with it."""
    worker = Worker(services.trainings)

    def start() -> None:
        services.home.sweep()
        if services.settings.worker:
            worker.start()

    def stop() -> None:
        worker.stop()
        services.close()

    app = application(
        services,
        [tables.router, received.messages, received.answers, trainings.router, models.router, audit.router],
        title="Features party",
        summary="Privatized messages in, every ε accounted for, models out.",
        start=start,
        stop=stop,
        alive=worker.alive,
        dead="The training worker is not running; restart the service.",
    )
    app.state.worker = worker
    app.state.stopping = lambda: False  # whoever serves it knows better
    app.state.streams = Streams(lambda: app.state.stopping())
    return app
