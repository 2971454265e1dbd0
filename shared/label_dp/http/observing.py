"""Figures of a scrape besides requests: build, workers, disk, store.

A scrape needs no key, so nothing here may depend on labels (invariant charge-for-labels). Ages are whole steps of five
minutes, free space is whole percents, and the store is read once a minute: none of them times a draw or a seal.
"""

from __future__ import annotations

import platform
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily
from prometheus_client.registry import Collector

from label_dp.errors import LabelDPError

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

    from label_dp.http.settings import ServiceSettings
    from label_dp.http.worker import Worker
    from label_dp.store.database import Database

AGE_STEP = 300
FRESH_SECONDS = 60.0

Look = Callable[["Connection"], Iterable[Metric]]


def coarse_age(seconds: float) -> int:
    """Round seconds down to whole steps of five minutes."""
    return int(max(0.0, seconds)) // AGE_STEP * AGE_STEP


def waited(moment: str | None, now: datetime) -> int:
    """Return the coarse age of a stored time; 0 for None."""
    if moment is None:
        return 0
    return coarse_age((now - datetime.strptime(moment, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)).total_seconds())


def gauge(name: str, says: str, labels: tuple[str, ...], values: Iterable[tuple[tuple[str, ...], float]]) -> Metric:
    """Make a gauge with a value for each tuple of labels."""
    family = GaugeMetricFamily(name, says, labels=labels)
    for of, value in values:
        family.add_metric(of, value)
    return family


class ServiceMetrics(Collector):
    """Collector of one service's figures. `look` reads those of its store; they are cached for `fresh` seconds."""

    def __init__(
        self,
        settings: ServiceSettings,
        version: str,
        database: Database,
        look: Look,
        workers: tuple[Worker, ...],
        fresh: float = FRESH_SECONDS,
    ) -> None:
        self.settings, self.version, self.database, self.look, self.fresh = settings, version, database, look, fresh
        self.workers = workers if settings.worker else ()
        self._lock = threading.Lock()
        self._read: list[Metric] = []
        self._until = float("-inf")

    def describe(self) -> Iterable[Metric]:
        """Return nothing: otherwise the registry would read the store to learn names."""
        return ()

    def collect(self) -> Iterator[Metric]:
        build = {"party": self.settings.party, "version": self.version, "revision": self.settings.revision}
        build["python"] = platform.python_version()
        yield InfoMetricFamily("label_dp_build", "Which build answers.", value=build)
        names = [((worker.name,), worker) for worker in self.workers]
        alive = ((of, float(worker.alive())) for of, worker in names)
        yield gauge("label_dp_worker_alive", "Whether a worker's thread runs.", ("worker",), alive)
        ages = ((of, coarse_age(worker.silent_seconds())) for of, worker in names)
        says = "Seconds since a worker began or ended a round, in steps of five minutes."
        yield gauge("label_dp_worker_silent_seconds", says, ("worker",), ages)
        usage = shutil.disk_usage(self.settings.home)
        free = usage.free * 100 // max(usage.total, 1) / 100
        yield gauge("label_dp_home_free_ratio", "Free share of the home's disk, in whole percents.", (), [((), free)])
        yield from self._stored()

    def _stored(self) -> list[Metric]:
        with self._lock:
            now = time.monotonic()
            if now >= self._until:
                self._read, self._until = self._look(), now + self.fresh
            return self._read

    def _look(self) -> list[Metric]:
        try:
            figures = self.database.read("metrics.look", lambda c: list(self.look(c)))
        except LabelDPError:  # the store's figures are missing, all others remain
            figures, up = [], 0.0
        else:
            up = 1.0
        says = "Whether the database answered when it was last asked, once a minute."
        return [gauge("label_dp_database_up", says, (), [((), up)]), *figures]
