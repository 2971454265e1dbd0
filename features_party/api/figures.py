"""Figures for operators of the features party: trainings by state, and the steps of messages with their seconds."""

from __future__ import annotations

from collections.abc import Iterator

import sqlalchemy as sa
from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, SummaryMetricFamily
from prometheus_client.registry import Collector
from sqlalchemy.engine import Connection

from features_party.models.jobs import ACCEPTED, STATES
from features_party.storage.tables import trainings as t
from features_party.telemetry.steps import REFUSED_NOT, Steps
from label_dp.audit.store import Clock
from label_dp.http.observing import gauge, waited


def figures(connection: Connection, clock: Clock) -> Iterator[Metric]:
    """Trainings by state, and how long the first in line has waited."""
    found = sa.select(t.c.state, sa.func.count().label("number")).group_by(t.c.state)
    counts: dict[str, int] = dict.fromkeys(STATES, 0) | {row.state: row.number for row in connection.execute(found)}
    yield gauge("label_dp_trainings", "Trainings by state.", ("state",), (((state,), n) for state, n in counts.items()))
    oldest = connection.execute(sa.select(sa.func.min(t.c.created)).where(t.c.state == ACCEPTED)).scalar()
    says = "Seconds that the first training in line has waited, in steps of five minutes."
    yield gauge("label_dp_training_waiting_seconds", says, (), [((), waited(oldest, clock()))])


class StepFigures(Collector):
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
        # of every step from the start: an alert sees no increase from nothing to one
        says = "Steps that a refusal, or an internal error, ended."
        refusals = CounterMetricFamily("label_dp_step_refusals", says, labels=("step",))
        for step, count in refused.items():
            refusals.add_metric((step,), count)
        yield refusals
