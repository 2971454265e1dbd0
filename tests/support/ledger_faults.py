"""What goes wrong inside a party of this process: at the n-th place where it can, once."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator

from sqlalchemy.exc import OperationalError

from label_dp.errors import Unavailable

CRASH, DROP, LOSE, FULL = "crash", "drop", "lose", "full"
TRANSACTION = (":begin", ":before-commit")
OUTSIDE = ("release.draw", "answer.draw", "purge.delete")  # no transactions, although their points begin as well


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


class Faults:
    """The fault hook of a party's database. After a crash every further point crashes too, until `revive`."""

    def __init__(self) -> None:
        self.calm()

    def arm(self, kind: str, nth: int) -> None:
        self.kind, self._left, self._dead, self._point = kind, nth, False, ""

    def calm(self) -> None:
        self.arm("", 0)

    def at(self, point: str) -> None:
        """Crash the next time it is there."""
        self.arm(CRASH, 1)
        self._point = point

    def revive(self) -> None:
        self._dead = False

    @contextlib.contextmanager
    def disk(self) -> Iterator[None]:
        """Within it the disk is full, where that was what should go wrong."""
        full, self.kind = self.kind == FULL, "" if self.kind == FULL else self.kind
        with full_disk() if full else contextlib.nullcontext():
            yield

    def __call__(self, point: str) -> None:
        if self._dead:
            raise Crash(point)  # who is dead does not clean up
        fits = {
            CRASH: self._point in ("", point),
            DROP: point.endswith(TRANSACTION) and not point.startswith(OUTSIDE),
            LOSE: point.endswith(":after-commit"),
        }
        if not fits.get(self.kind, False):
            return
        self._left -= 1
        if self._left:
            return
        kind, self.kind = self.kind, ""
        if kind == CRASH:
            self._dead = True
            raise Crash(point)
        if kind == DROP:
            raise OperationalError("COMMIT", {}, OSError("server closed the connection unexpectedly"))
        raise Unavailable("The answer of the database was lost on its way.")
