"""Trainings requested over REST: accepted → running → succeeded, failed or cancelled, surviving a restart.

The holder of the home's worker lock requeues the trainings of a dead worker; a training that was begun three times
fails with a problem. Cancelling and finishing are one transaction each: the first one decides. `TrainingWorker` is
the thread that runs them, one per home.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from features_party.models.folder import SavedModel
from features_party.models.store import Models
from features_party.models.trainer import Trainer, check_learning, check_one_label, default_loss, warm_of
from features_party.receive.messages import Messages
from features_party.storage import tables
from features_party.storage.home import MODEL_PREFIX, Home, fresh_id
from features_party.tables.feature_tables import FeatureTables
from features_party.telemetry.steps import CANCELLED as CANCELLED_STEP
from features_party.telemetry.steps import STOPPED, TRAIN
from label_dp.audit.store import Clock
from label_dp.errors import Conflict, LabelDPError, NotFound
from label_dp.http import worker
from label_dp.logs import event, log_internal
from label_dp.problems import http_problem, problem
from label_dp.schemas.training import Learning, Training
from label_dp.store.database import Database
from label_dp.store.idempotency import NO_KEY, IdempotentCall, Reply
from label_dp.store.paging import Listing, Page, select_page

log = logging.getLogger("label_dp.features_party")

ACCEPTED, RUNNING, SUCCEEDED, FAILED, CANCELLED = "accepted", "running", "succeeded", "failed", "cancelled"
ENDED = (SUCCEEDED, FAILED, CANCELLED)
STATES = (ACCEPTED, RUNNING, *ENDED)
MAX_ATTEMPTS = 3
REPORT_SECONDS = 0.5

t = tables.trainings
SHOWN = [column for column in t.c if column.name not in ("cancel_requested", "losses")]
STOP_SECONDS = 5.0  # then the next start handles a training that does not end


class TrainingEnd(Exception):
    """Exception that ends a training from within its progress reports: it was cancelled, or the service ends."""

    def __init__(self, outcome: str) -> None:
        super().__init__(outcome)
        self.outcome = outcome


@dataclass(frozen=True)
class Trainings:
    """Queue of trainings, in the database."""

    database: Database
    home: Home
    messages: Messages
    feature_tables: FeatureTables
    trainer: Trainer
    models: Models
    clock: Clock

    def request(self, wanted: Training, call: IdempotentCall = NO_KEY) -> Mapping[str, Any]:
        """Queue a training after checking all that can be checked now. Raises NotFound, InvalidInput, Conflict.

        The same `call` again has the same answer, and no effect.
        """
        answered = self.database.read("training.seen", call.earlier)
        if answered is not None:
            return answered[1]
        check_learning(wanted)
        table = wanted.feature_table
        self.feature_tables.get(table)
        messages = [self.messages.open(release) for release in wanted.messages]
        check_one_label(messages)
        if wanted.warm_start is not None:  # whatever an alias names until the training runs
            wanted = wanted.model_copy(update={"warm_start": self.models.id_of(wanted.warm_start)})
        if (earlier := self._earlier(wanted)) is not None:
            warm_of(earlier, wanted.model, wanted.loss or default_loss(messages))
        training_id = fresh_id("tr")
        row = {
            "id": training_id,
            "state": ACCEPTED,
            # by digest too: this fixes the messages, whatever is accepted until the training runs
            "request": wanted.model_dump(exclude={"name", "note"}) | {"digests": [m.digest for m in messages]},
            "step": "waiting",
            "share": 0.0,
            "attempts": 0,
            "created": self._now(),
            "name": wanted.name,
            "note": wanted.note,
        }

        def effect(connection: Connection) -> Reply:
            # it may have been deleted since it was read
            if connection.execute(sa.select(tables.feature_tables.c.id).filter_by(id=table)).first() is None:
                raise NotFound(f"There is no feature table '{table}'.")
            connection.execute(sa.insert(t).values(**row))
            return 202, self._get(connection, training_id)

        answer = self.database.write("training.request", lambda c: call.once(c, partial(effect, c)))[1]
        self.trainer.steps.remember(answer["id"])
        return answer

    def get(self, training_id: str) -> dict[str, Any]:
        """Return state, progress, request, and the model or the problem. Raises NotFound."""
        return self.database.read("training.get", lambda c: self._get(c, training_id))

    @staticmethod
    def _get(connection: Connection, training_id: str) -> dict[str, Any]:
        row = connection.execute(sa.select(*SHOWN).where(t.c.id == training_id)).first()
        if row is None:
            raise NotFound(f"There is no training '{training_id}'.")
        return dict(row._mapping)

    def losses(self, training_id: str) -> Any:
        """Return its loss curves so far: each with its name, and places with losses."""
        query = sa.select(t.c.losses).where(t.c.id == training_id)
        return self.database.read("training.losses", lambda c: c.execute(query).scalar()) or []

    def list(self, page: Page, state: str | None = None) -> Listing[dict[str, Any]]:
        """List trainings by the time of the request, optionally of one state only."""
        query = sa.select(*SHOWN) if state is None else sa.select(*SHOWN).where(t.c.state == state)
        return self.database.read("training.list", lambda c: select_page(c, query, t.c.created, t.c.id, page))

    def cancel(self, training_id: str) -> dict[str, Any]:
        """Cancel a training: at once if it waits, at its next report if it runs; nothing of it is kept.

        Cancelling again changes nothing. Raises NotFound, Conflict (it has succeeded or failed).
        """

        def work(connection: Connection) -> dict[str, Any]:
            row = self._get(connection, training_id)
            if row["state"] in (SUCCEEDED, FAILED):
                raise Conflict(f"Training '{training_id}' has {row['state']} already; there is nothing to cancel.")
            if row["state"] == ACCEPTED:
                self._set(connection, training_id, **self._cancelled())
            elif row["state"] == RUNNING:
                self._set(connection, training_id, cancel_requested=True, step="cancelling")
            return self._get(connection, training_id)

        return self.database.write("training.cancel", work)

    def recover(self) -> None:
        """Requeue running trainings after a restart, or end them after a cancel or too many attempts."""
        body = http_problem(
            500,
            "interrupted",
            "Training interrupted",
            f"The service stopped {MAX_ATTEMPTS} times during this training.",
        )
        again = {"state": ACCEPTED, "step": "waiting", "share": 0.0, "revision": t.c.revision + 1}
        failed = {"state": FAILED, "step": "failed", "problem": body, "finished": self._now()}

        def work(connection: Connection) -> list[str]:
            running = connection.execute(
                sa.select(t.c.id, t.c.attempts, t.c.cancel_requested).where(t.c.state == RUNNING)
            ).all()
            for row in running:
                if row.cancel_requested:
                    self._set(connection, row.id, **self._cancelled())
                else:
                    self._set(connection, row.id, **(failed if row.attempts >= MAX_ATTEMPTS else again))
            return [row.id for row in running]

        for training_id in self.database.write("training.recover", work):
            self.models.drop(model_of(training_id))

    def run_next(self, stopping: Callable[[], bool] = lambda: False) -> bool:
        """Run the oldest queued training, if there is one. Its failure is recorded, not raised.

        As soon as `stopping` returns True the training ends and is requeued, without counting as an attempt.
        """

        def claim(connection: Connection) -> Any:
            query = sa.select(t.c.id, t.c.request).where(t.c.state == ACCEPTED).order_by(t.c.created, t.c.id).limit(1)
            row = connection.execute(query).first()
            if row is not None:
                begun = {"state": RUNNING, "step": "starting", "share": 0.0, "started": self._now(), "losses": None}
                self._set(connection, row.id, attempts=t.c.attempts + 1, **begun)
            return row

        row = self.database.write("training.claim", claim)
        if row is None:
            return False
        # named after its training, so that a repeated attempt replaces the remains of a dead one
        self.models.drop(model_of(row.id))
        try:
            with self.trainer.steps.step(TRAIN, cause=row.id):
                self._train(row.id, row.request, stopping)
        except TrainingEnd as end:
            if end.outcome == STOPPED:
                self._end(row.id, state=ACCEPTED, step="waiting", share=0.0, attempts=t.c.attempts - 1)
                return True
            self._end(row.id, **self._cancelled())
            log.info("training %s was cancelled", row.id, extra=event("training-cancelled", training=row.id))
        except LabelDPError as error:
            self._end(row.id, **self._failed(problem(error)[1]))
        except Exception as error:
            # neither text nor locals of a bug are stored or logged
            log_internal(log, f"training {row.id}", error, training=row.id)
            internal = http_problem(500, "internal", "Internal error", "The training failed; see the log.")
            self._end(row.id, **self._failed(internal))
        else:
            ids = {"training": row.id, "model": model_of(row.id)}
            log.info("training %s gave model %s", *ids.values(), extra=event("training-succeeded", **ids))
        return True

    def _train(self, training_id: str, request: dict[str, Any], stopping: Callable[[], bool]) -> None:
        messages = [self.messages.open(digest) for digest in request["digests"]]
        table = self.feature_tables.open(request["feature_table"], text=request["categorical"], narrow=True)
        learning = Learning(**{name: request[name] for name in Learning.model_fields if name in request})
        earlier = self._earlier(learning)
        last, losses = 0.0, Losses()

        def report(step: str, share: float) -> None:
            nonlocal last
            if stopping():
                raise TrainingEnd(STOPPED)
            losses.heard(step)
            if time.monotonic() - last < REPORT_SECONDS:
                return
            self.database.write("training.progress", lambda c: self._progress(c, training_id, step, share, losses))
            last = time.monotonic()

        def finish(connection: Connection, card: dict[str, Any]) -> None:
            self._refuse_cancelled(connection, training_id)
            model_id = model_of(training_id)
            self.models.record(connection, model_id, training_id, card)
            values = {"state": SUCCEEDED, "step": "done", "share": 1.0, "model": model_id, "finished": self._now()}
            values["losses"] = losses.as_json()
            self._set(connection, training_id, **values)

        model_id = model_of(training_id)
        saved = partial(self.models.keep, model_id)
        folder = self.models.folder(model_id)
        self.trainer.train(messages, table, learning, folder, report, training_id, finish, earlier, saved, losses.watch)

    def _earlier(self, learning: Learning) -> SavedModel | None:
        return None if learning.warm_start is None else self.models.open(learning.warm_start)

    def _progress(self, connection: Connection, training_id: str, step: str, share: float, losses: Losses) -> None:
        self._refuse_cancelled(connection, training_id)
        self._set(connection, training_id, step=step, share=share, losses=losses.as_json())

    @staticmethod
    def _refuse_cancelled(connection: Connection, training_id: str) -> None:
        if connection.execute(sa.select(t.c.cancel_requested).where(t.c.id == training_id)).scalar():
            raise TrainingEnd(CANCELLED_STEP)

    @staticmethod
    def _set(connection: Connection, training_id: str, **values: Any) -> None:
        connection.execute(sa.update(t).where(t.c.id == training_id).values(**{"revision": t.c.revision + 1} | values))

    def _end(self, training_id: str, **values: Any) -> None:
        """End an attempt without a model. Does nothing if the transaction that seemed to fail had made the training
        succeed."""

        def work(connection: Connection) -> bool:
            running = connection.execute(sa.select(t.c.state).where(t.c.id == training_id)).scalar() == RUNNING
            if running:
                self._set(connection, training_id, **values)
            return running

        if self.database.write("training.end", work):
            self.models.drop(model_of(training_id))

    def _cancelled(self) -> dict[str, object]:
        return {"state": CANCELLED, "step": "cancelled", "finished": self._now()}

    def _failed(self, body: dict[str, Any]) -> dict[str, object]:
        return {"state": FAILED, "step": "failed", "problem": body, "finished": self._now()}

    def _now(self) -> str:
        return self.clock().strftime("%Y-%m-%dT%H:%M:%SZ")


def model_of(training_id: str) -> str:
    """Return the id of the model that a training makes."""
    return MODEL_PREFIX + training_id.removeprefix("tr_")


# Loss curves of a training while it runs, reported by its learners, one curve for each fit.
#
# Losses are those of corrected labels, including noise: they show whether a training progresses, not how good its
# model is.
MOST_CURVES = 4
MOST_POINTS = 120
COUNTED = re.compile(r"(?:(?:^|, )(?:tree|epoch) \d+ of \d+)?(?:, about [\w ]+ left)?$")


class Losses:
    """Recorder of losses: `heard` names the current fit, `watch` its loss after some trees or epochs; the last
    MOST_CURVES are kept."""

    def __init__(self) -> None:
        self._what = ""
        self._curves: dict[str, list[list[float]]] = {}
        self._every: dict[str, int] = {}

    def heard(self, step: str) -> None:
        self._what = COUNTED.sub("", step) or "model"

    def watch(self, place: int, loss: float) -> None:
        points = self._curves.setdefault(self._what, [])
        if points and place <= points[-1][0]:  # a new fit of the same name begins
            points.clear()
            self._every[self._what] = 1
        if place % self._every.setdefault(self._what, 1) and place > 1:
            return
        points.append([place, float(f"{loss:.6g}")])
        if len(points) > MOST_POINTS:
            del points[1::2]
            self._every[self._what] *= 2
        while len(self._curves) > MOST_CURVES:
            del self._curves[next(iter(self._curves))]

    def as_json(self) -> list[dict[str, Any]]:
        return [{"name": name, "points": [*points]} for name, points in self._curves.items() if points]


class TrainingWorker(worker.Worker):
    """Worker that runs trainings one by one, alone by a lock that the operating system drops with the process."""

    def __init__(self, trainings: Trainings, poll_seconds: float = 1.0) -> None:
        super().__init__("training-worker", poll_seconds)
        self._trainings, self._recovered = trainings, False

    def round(self) -> bool:
        """Run the next training; a stopped one is requeued."""
        if not self._recovered:
            self._trainings.recover()
            self._recovered = True
        return self._trainings.run_next(self.stopping)

    def stop(self, timeout: float | None = STOP_SECONDS) -> None:
        super().stop(timeout)

    @contextlib.contextmanager
    def session(self) -> Iterator[None]:
        with self._trainings.home.worker_lock.open("w") as file:
            while not self.stopping():
                self.moves()
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    self._stop.wait(self.poll_seconds)  # another process trains; take over when it ends
                else:
                    break
            yield
