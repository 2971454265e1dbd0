"""Trainings asked for over REST: accepted → running → succeeded or failed, surviving a restart.

One process per home trains (a file lock that the operating system drops when the process dies). Whoever gets the lock
puts what a dead worker left running back in line; a training that was begun three times fails with a problem.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import secrets
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from features_party.feature_tables import FeatureTables
from features_party.intake.accept import Intake
from features_party.registry.models import Models
from features_party.storage import tables
from features_party.storage.home import Home
from features_party.trainer import Options, Trainer, check_one_label
from shared.audit.store import Clock
from shared.errors import LabelDPError, NotFound
from shared.problems import http_problem, problem
from shared.service.database import Database

log = logging.getLogger("label_dp.features_party")

ACCEPTED, RUNNING, SUCCEEDED, FAILED = "accepted", "running", "succeeded", "failed"
ENDED = (SUCCEEDED, FAILED)
MAX_ATTEMPTS = 3
REPORT_SECONDS = 0.5


@dataclass(frozen=True)
class Trainings:
    database: Database
    home: Home
    intake: Intake
    feature_tables: FeatureTables
    trainer: Trainer
    models: Models
    clock: Clock

    def request(self, table: str, releases: list[str], options: Options) -> dict[str, Any]:
        """Put a training in line after checking what can be checked now. Raises NotFound, InvalidInput, Conflict."""
        options.check()
        self.feature_tables.get(table)
        messages = [self.intake.open(release) for release in releases]
        check_one_label(messages)
        training_id = f"tr_{secrets.token_hex(8)}"
        row = {
            "id": training_id,
            "state": ACCEPTED,
            # by digest too: which messages are meant is settled now, whatever is accepted until the training runs
            "request": {
                "feature_table": table,
                "messages": releases,
                "digests": [message.digest for message in messages],
                **asdict(options),
            },
            "step": "waiting",
            "share": 0.0,
            "attempts": 0,
            "created": self._now(),
        }
        self.database.write("training.request", lambda c: c.execute(sa.insert(tables.trainings).values(**row)) and None)
        return self.get(training_id)

    def get(self, training_id: str) -> dict[str, Any]:
        """State, progress, request, and the model or the problem. Raises NotFound."""
        t = tables.trainings
        query = sa.select(t).where(t.c.id == training_id)
        row = self.database.read("training.get", lambda c: c.execute(query).first())
        if row is None:
            raise NotFound(f"There is no training '{training_id}'.")
        return dict(row._mapping)

    def list(self) -> list[dict[str, Any]]:
        t = tables.trainings
        query = sa.select(t).order_by(t.c.created, t.c.id)
        return [dict(r._mapping) for r in self.database.read("training.list", lambda c: c.execute(query).all())]

    def recover(self) -> None:
        """After a restart: what was running is put back in line, or failed after too many attempts."""
        t = tables.trainings
        body = http_problem(
            500,
            "interrupted",
            "Training interrupted",
            f"The service stopped {MAX_ATTEMPTS} times during this training.",
        )

        def work(connection: Connection) -> None:
            running = sa.update(t).where(t.c.state == RUNNING)
            too_often = running.where(t.c.attempts >= MAX_ATTEMPTS)
            connection.execute(too_often.values(state=FAILED, problem=body, finished=self._now()))
            connection.execute(running.values(state=ACCEPTED, step="waiting", share=0.0))

        self.database.write("training.recover", work)

    def run_next(self) -> bool:
        """Run the oldest training in line, if there is one. Its failure is recorded, not raised."""
        t = tables.trainings

        def claim(connection: Connection) -> Any:
            query = sa.select(t.c.id, t.c.request).where(t.c.state == ACCEPTED).order_by(t.c.created, t.c.id).limit(1)
            row = connection.execute(query).first()
            if row is not None:
                change = {"state": RUNNING, "step": "starting", "share": 0.0, "attempts": t.c.attempts + 1}
                connection.execute(sa.update(t).where(t.c.id == row.id).values(**change))
            return row

        row = self.database.write("training.claim", claim)
        if row is None:
            return False
        # named after its training, so that a repeated attempt replaces what a dead one left
        model_id = "m_" + row.id.removeprefix("tr_")
        try:
            shutil.rmtree(self.models.folder(model_id), ignore_errors=True)
            card = self._train(row.id, row.request, model_id)
        except LabelDPError as error:
            self._fail(row.id, problem(error)[1])
        except Exception as error:
            # neither text nor locals of a bug are stored or logged
            log.error("training %s failed with an internal error of type %s", row.id, type(error).__name__)
            self._fail(row.id, http_problem(500, "internal", "Internal error", "The training failed; see the log."))
        else:
            self.database.write("training.finish", lambda c: self._finish(c, row.id, model_id, card))
            log.info("training %s gave model %s", row.id, model_id)
        return True

    def _train(self, training_id: str, request: dict[str, Any], model_id: str) -> dict[str, Any]:
        messages = [self.intake.open(digest) for digest in request["digests"]]
        table = self.feature_tables.open(request["feature_table"], text=request["categorical"])
        options = Options(
            model=request["model"],
            loss=request["loss"],
            correction=request["correction"],
            categorical=tuple(request["categorical"]),
            exclude=tuple(request["exclude"]),
        )
        last = 0.0

        def report(step: str, share: float) -> None:
            nonlocal last
            if time.monotonic() - last < REPORT_SECONDS:
                return
            last = time.monotonic()
            change = sa.update(tables.trainings).where(tables.trainings.c.id == training_id)
            self.database.write(
                "training.progress", lambda c: c.execute(change.values(step=step, share=share)) and None
            )

        return self.trainer.train(messages, table, options, self.models.folder(model_id), report, actor=training_id)

    def _finish(self, connection: Connection, training_id: str, model_id: str, card: dict[str, Any]) -> None:
        self.models.record(connection, model_id, training_id, card)
        change = sa.update(tables.trainings).where(tables.trainings.c.id == training_id)
        connection.execute(change.values(state=SUCCEEDED, step="done", share=1.0, model=model_id, finished=self._now()))

    def _fail(self, training_id: str, body: dict[str, Any]) -> None:
        change = sa.update(tables.trainings).where(tables.trainings.c.id == training_id)
        done = change.values(state=FAILED, step="failed", problem=body, finished=self._now())
        self.database.write("training.fail", lambda c: c.execute(done) and None)

    def _now(self) -> str:
        return self.clock().strftime("%Y-%m-%dT%H:%M:%SZ")


class Worker:
    """A thread that runs trainings one by one while this process holds the home's worker lock."""

    def __init__(self, trainings: Trainings, poll_seconds: float = 1.0) -> None:
        self._trainings, self._poll = trainings, poll_seconds
        self._wake, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="trainings", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def alive(self) -> bool:
        return self._thread.is_alive()

    def wake(self) -> None:
        self._wake.set()

    def stop(self, timeout: float = 5.0) -> None:
        """Ask the thread to end after the training it is in; after `timeout` seconds it is left to the next start."""
        self._stop.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def _run(self) -> None:
        with self._lock() as held:
            recovered = False
            while held and not self._stop.is_set():
                try:
                    if not recovered:
                        self._trainings.recover()
                        recovered = True
                    if self._trainings.run_next():
                        continue
                except LabelDPError as error:  # the database is away: wait for it
                    log.warning("the training worker waits: %s", error.code)
                self._wake.wait(self._poll)
                self._wake.clear()

    @contextlib.contextmanager
    def _lock(self) -> Iterator[bool]:
        with self._trainings.home.worker_lock.open("w") as file:
            while not self._stop.is_set():
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    self._stop.wait(self._poll)  # another process trains; take over when it ends
                else:
                    break
            yield not self._stop.is_set()
