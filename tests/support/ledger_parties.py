"""The labels parties that a `World` plays with: one in this process, with faults; one in a process that is killed."""

from __future__ import annotations

import contextlib
import random
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy.exc import OperationalError

from labels_party.bootstrap import Services, bootstrap
from labels_party.settings import Settings
from shared.errors import LabelDPError, Unavailable
from tests.support.labels import FakeClock, LabelsParty
from tests.support.ledger_calls import Calls, found_population
from tests.support.ledger_process import Child, Died, Nursery, Refused, Start
from tests.support.ledger_world import Unknown

CRASH, DROP, LOSE, FULL = "crash", "drop", "lose", "full"
TRANSACTION = (":begin", ":before-commit")
OUTSIDE = ("release.draw", "purge.delete")  # no transactions, although their points begin as well


class Crash(BaseException):
    """Stands for SIGKILL: nothing of the program catches it on purpose."""


@contextlib.contextmanager
def full_disk() -> Iterator[None]:
    """No file can be written."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def make_template(home: Path) -> Path:
    with LabelsParty(home, worker=False) as party:
        found_population(party.services)
    return home


class Here:
    """`arm` says what goes wrong at the n-th place where it can: the next call at which that happens is unanswered."""

    def __init__(self, home: Path, url: str | None = None) -> None:
        self.home, self.url, self.clock = home, url, FakeClock()
        self.calm()
        self.open()

    def arm(self, kind: str, nth: int) -> None:
        self._kind, self._left, self._dead = kind, nth, False

    def calm(self) -> None:
        self.arm("", 0)

    def open(self) -> None:
        self._dead = False
        try:
            self.party = LabelsParty(
                self.home, database_url=self.url, faults=self._fault, clock=self.clock, worker=False
            )
        except LabelDPError as error:
            raise Refused(error.code, error.detail) from None

    def close(self) -> None:
        self.party.services.close()

    def look(self) -> Services:
        return self.party.services

    def call(self, name: str, *arguments: Any, key: str = "") -> Any:
        try:
            if self._kind == FULL:
                self._kind = ""
                with full_disk():
                    return Calls(self.party.services).call(name, key, list(arguments))
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

    def _fault(self, point: str) -> None:
        if self._dead:
            raise Crash(point)  # who is dead does not clean up
        fits = {
            CRASH: True,
            DROP: point.endswith(TRANSACTION) and not point.startswith(OUTSIDE),
            LOSE: point.endswith(":after-commit"),
        }
        if not fits.get(self._kind, False):
            return
        self._left -= 1
        if self._left:
            return
        kind, self._kind = self._kind, ""
        if kind == CRASH:
            self._dead = True
            raise Crash(point)
        if kind == DROP:
            raise OperationalError("COMMIT", {}, OSError("server closed the connection unexpectedly"))
        raise Unavailable("The answer of the database was lost on its way.")


class There:
    """In a child, which is killed at a random moment of the next call, or at a named fault point."""

    def __init__(self, nursery: Nursery, home: Path, rng: random.Random, url: str | None = None) -> None:
        self.nursery, self.home, self.rng, self.url = nursery, home, rng, url
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
        self.child: Child = self.nursery.start(Start(str(self.home), self.url))

    def close(self) -> None:
        self.child.kill()
        if self._observer is not None:
            self._observer.close()
            self._observer = None

    def look(self) -> Services:
        if self._observer is None:
            self._observer = bootstrap(Settings(home=self.home, database_url=self.url, worker=False))  # type: ignore[arg-type]  # pydantic converts
        return self._observer

    def call(self, name: str, *arguments: Any, key: str = "") -> Any:
        within, self._within = self._within, 0.0
        timer = self.child.kill_later(self.rng.uniform(0, within)) if within else None
        try:
            return self.child.call(name, *arguments, key=key)
        except Died:
            self.kills += 1
            self._point = ""
            self.child.kill()
            self.open()
            raise Unknown from None
        except Refused as refused:
            if refused.code == "unavailable":
                raise Unknown(refused.detail) from None
            raise
        finally:
            if timer is not None:
                timer.cancel()
                timer.join()
