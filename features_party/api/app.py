"""Application of the features party."""

from __future__ import annotations

from collections.abc import Iterator

import sqlalchemy as sa
from fastapi import FastAPI
from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, SummaryMetricFamily
from prometheus_client.registry import Collector
from sqlalchemy.engine import Connection
from starlette.middleware import Middleware

from features_party.api import audit, intake, models, tables, trainings
from features_party.bootstrap import Services
from features_party.models.event_stream import Streams
from features_party.models.jobs import ACCEPTED, STATES, TrainingWorker
from features_party.pages import site as pages
from features_party.storage.tables import trainings as t
from features_party.telemetry.steps import REFUSED_NOT, Steps
from features_party.telemetry.traces import Admitted, Traced
from label_dp.audit.store import Clock
from label_dp.http.application import application
from label_dp.http.observing import gauge, waited
from label_dp.named_modules import installed


def figures(connection: Connection, clock: Clock) -> Iterator[Metric]:
    """Yield trainings by state, and the waiting time of the first in line."""
    by_state = sa.select(t.c.state, sa.func.count().label("number")).group_by(t.c.state)
    counts: dict[str, int] = dict.fromkeys(STATES, 0) | {row.state: row.number for row in connection.execute(by_state)}
    yield gauge("label_dp_trainings", "Trainings by state.", ("state",), (((state,), n) for state, n in counts.items()))
    oldest = connection.execute(sa.select(sa.func.min(t.c.created)).where(t.c.state == ACCEPTED)).scalar()
    says = "Seconds that the first training in line has waited, in steps of five minutes."
    yield gauge("label_dp_training_waiting_seconds", says, (), [((), waited(oldest, clock()))])


class StepFigures(Collector):
    """Collector of the counts and seconds of steps."""

    def __init__(self, steps: Steps) -> None:
        self.steps = steps

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        says = "Steps of messages and trainings by how they ended, with their seconds."
        family = SummaryMetricFamily("label_dp_step_seconds", says, labels=("step", "outcome"))
        refused: dict[str, int] = {}
        for step, outcome, count, seconds in self.steps.ended():
            family.add_metric((step, outcome), count, seconds)
            refused[step] = refused.get(step, 0) + (count if outcome not in REFUSED_NOT else 0)
        yield family
        # zero for every step from the start: otherwise an alert would miss the first increase
        says = "Steps that a refusal, or an internal error, ended."
        refusals = CounterMetricFamily("label_dp_step_refusals", says, labels=("step",))
        for step, count in refused.items():
            refusals.add_metric((step,), count)
        yield refusals


def create_app(services: Services) -> FastAPI:
    """Build the REST service over `services`; its background worker starts and stops with it."""
    companions = installed("features_party.companions.api")
    worker, traces = TrainingWorker(services.trainings), services.traces()

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
            *(tables.router, intake.messages, intake.answers, trainings.router, models.router, audit.router),
            *(() if companions is None else (companions.router,)),
            audit.pinned_router,
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
    app.state.stopping = lambda: False  # the server replaces it
    app.state.streams = Streams(lambda: app.state.stopping())
    services.outgoing.stopping = lambda: app.state.stopping()
    return app
