"""The labels parties that a `World` plays with: one in this process, with faults; one in a process that is killed."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

from label_dp.errors import LabelDPError, Unavailable
from labels_party.bootstrap import Services, bootstrap
from labels_party.settings import Settings
from tests.support.labels import FakeClock, LabelsParty
from tests.support.ledger_calls import Calls
from tests.support.ledger_faults import Crash, Faults
from tests.support.ledger_process import Child, Died, Nursery, Refused, Start
from tests.support.ledger_world import Unknown


class Here:
    """`arm` says what goes wrong at the n-th place where it can: the next call at which that happens is unanswered."""

    def __init__(self, home: Path, url: str | None = None) -> None:
        self.home, self.url, self.clock, self.faults = home, url, FakeClock(), Faults()
        self.open()

    def arm(self, kind: str, nth: int) -> None:
        self.faults.arm(kind, nth)

    def calm(self) -> None:
        self.faults.calm()

    def open(self) -> None:
        self.faults.revive()
        try:
            self.party = LabelsParty(
                self.home, database_url=self.url, faults=self.faults, clock=self.clock, worker=False
            )
        except LabelDPError as error:
            raise Refused(error.code, error.detail) from None

    def close(self) -> None:
        self.party.services.close()

    def look(self) -> Services:
        return self.party.services

    def call(self, name: str, *arguments: Any, key: str = "") -> Any:
        try:
            with self.faults.disk():
                return Calls(self.party.services).call(name, key, list(arguments))
        except Crash:
            self.party.services.pipeline.close()  # the operating system frees the lock file
            self.party.services.database.dispose()
            self.calm()
            self.open()
            raise Unknown from None
        except Unavailable as error:
            raise Unknown(error.detail) from None
        except LabelDPError as error:
            raise Refused(error.code, error.detail) from None


class There:
    """In a child, which is killed at a random moment of the next call, or at a named fault point."""

    def __init__(
        self, nursery: Nursery, home: Path, rng: random.Random, url: str | None = None, objects: str = ""
    ) -> None:
        self.nursery, self.home, self.rng, self.url, self.objects = nursery, home, rng, url, objects
        self.kills, self._within, self._point = 0, 0.0, ""
        self._observer: Services | None = None
        self.open()

    def kill_within(self, seconds: float) -> None:
        self._within = seconds

    def kill_at(self, point: str) -> None:
        """The next time that point is reached."""
        self._point = point
        self.child.call("kill at", point)

    def calm(self) -> None:
        self._within = 0.0
        if self._point:
            self.kill_at("")

    def open(self) -> None:
        self.child: Child = self.nursery.start(Start(str(self.home), self.url, self.objects))

    def close(self) -> None:
        self.child.kill()
        if self._observer is not None:
            self._observer.close()
            self._observer = None

    def look(self) -> Services:
        if self._observer is None:
            where = {"home": self.home, "database_url": self.url, "objects": self.objects}
            self._observer = bootstrap(Settings(**where, worker=False))  # type: ignore[arg-type]  # pydantic converts
        return self._observer

    def call(self, name: str, *arguments: Any, key: str = "") -> Any:
        within, self._within = self._within, 0.0
        timer = self.child.kill_later(self.rng.uniform(0, within)) if within else None
        try:
            return self.child.call(name, *arguments, key=key)
        except Died:
            self._again()
            raise Unknown from None
        except Refused as refused:
            if refused.code == "unavailable":
                raise Unknown(refused.detail) from None
            raise
        finally:
            if timer is not None:
                timer.cancel()
                timer.join()
                if self.child.killed:  # after it had answered
                    self._again()

    def _again(self) -> None:
        """Another child in the place of a killed one."""
        self.kills += 1
        self._point = ""
        self.child.kill()
        self.child.killed = False
        if self.url is not None and self.url.startswith("postgresql"):
            settled(self.url)
        self.open()


def settled(url: str) -> None:
    """Until the server has ended what killed clients had sent: a commit may still be on its way."""
    import psycopg

    # in a transaction that waits for its client a COMMIT may still be unread
    active = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
        "AND backend_type = 'client backend' AND state <> 'idle'"
    )
    with psycopg.connect(url, autocommit=True) as connection:
        end = time.monotonic() + 120
        while connection.execute(active).fetchone() != (0,):
            assert time.monotonic() < end, "the server does not come to rest"
            time.sleep(0.01)
