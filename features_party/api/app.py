"""The application of the features party."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.middleware import Middleware

from features_party.api import audit, models, pinned, received, tables, trainings
from features_party.api.figures import StepFigures, figures
from features_party.bootstrap import Services
from features_party.models.event_stream import Streams
from features_party.models.worker import Worker
from features_party.pages import site as pages
from features_party.telemetry.traces import Admitted, Traced
from label_dp.http.application import application
from label_dp.named_modules import installed


def create_app(services: Services) -> FastAPI:
    """The REST service over `services`; its background worker starts and stops with it."""
    companions = installed("features_party.companions.api")
    worker, traces = Worker(services.trainings), services.traces()

    def start() -> None:
        services.home.sweep()
        if services.settings.worker:
            worker.start()

    def stop() -> None:
        worker.stop()
        if traces is not None:
            traces.close()
        services.close()

    app = application(
        services,
        [
            *(tables.router, received.messages, received.answers, trainings.router, models.router, audit.router),
            *(() if companions is None else (companions.router,)),
            pinned.router,
            *pages.routers(),
        ],
        title="Features party",
        summary="Privatized messages in, every ε accounted for, models out.",
        start=start,
        stop=stop,
        workers=(worker,),
        look=lambda connection: figures(connection, services.trainings.clock),
        others=(StepFigures(services.steps),),
        dead="The training worker is not running; restart the service.",
        admitted=() if traces is None else (Middleware(Admitted, traces=traces),),
    )
    if traces is not None:
        services.steps.span, services.steps.remember = traces.step, traces.remember
        app.add_middleware(Traced, traces=traces)
    app.state.site = pages.site(services)
    app.state.worker = worker
    app.state.stopping = lambda: False  # whoever serves it knows better
    app.state.streams = Streams(lambda: app.state.stopping())
    services.outgoing.stopping = lambda: app.state.stopping()
    return app
