"""Steps of a message's way here: counted and timed for metrics, and spans of a trace.

A step has a name and an outcome, never an id, a feature or a label. The labels party has no steps: their durations and
outcomes would depend on labels.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from label_dp.errors import LabelDPError

# a pull verifies, fetches and accounts; a training joins and fits
PULL, VERIFY, FETCH, ACCOUNT, TRAIN, JOIN, FIT = STEPS = (
    *("pull", "verify", "fetch", "account"),
    *("train", "join", "fit"),
)
DONE, INTERNAL = "done", "internal"
CANCELLED, STOPPED = "cancelled", "stopped"
REFUSED_NOT = (DONE, CANCELLED, STOPPED)

Ended = Callable[[str], None]
Span = Callable[[str, str | None], contextlib.AbstractContextManager[Ended]]


@contextlib.contextmanager
def no_span(_name: str, _cause: str | None) -> Iterator[Ended]:
    """Trace nothing."""
    yield lambda _outcome: None


class Steps:
    """Counts and total seconds of steps by outcome. `span` traces them if traces are on."""

    def __init__(self) -> None:
        self.span: Span = no_span
        self.remember: Callable[[str], None] = lambda _cause: None
        self._ended = {(name, DONE): (0, 0.0) for name in STEPS}
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def step(self, name: str, cause: str | None = None) -> Iterator[None]:
        """Time a step. `cause`: id of the request that caused it, whose span called `remember`."""
        began, outcome = time.monotonic(), DONE
        with self.span(name, cause) as ended:
            try:
                yield
            except BaseException as error:
                outcome = outcome_of(error)
                raise
            finally:
                ended(outcome)
                self._count(name, outcome, time.monotonic() - began)

    def ended(self) -> list[tuple[str, str, int, float]]:
        """List each step with its outcome, count and total seconds."""
        with self._lock:
            return [(*of, *sums) for of, sums in sorted(self._ended.items())]

    def _count(self, name: str, outcome: str, seconds: float) -> None:
        with self._lock:
            count, before = self._ended.get((name, outcome), (0, 0.0))
            self._ended[name, outcome] = (count + 1, before + seconds)


def outcome_of(error: BaseException) -> str:
    """Return the code of an error's class: a code or message sent by another service is untrusted text."""
    if isinstance(error, LabelDPError):
        return type(error).code
    return str(getattr(type(error), "outcome", INTERNAL))
