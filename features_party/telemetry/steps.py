"""The steps of a message's way here: counted and timed for metrics, and spans of a trace where one is kept.

A step says its name and how it ended. It never holds an id, a feature or a label. The other party takes no steps: how
long its work lasted, and how it ended, would tell of labels.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from label_dp.errors import LabelDPError

# a pull verifies, fetches and accounts for what it brings; a training joins and fits
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
def no_span(_name: str, _asked: str | None) -> Iterator[Ended]:
    """Trace nothing."""
    yield lambda _outcome: None


class Steps:
    """How many steps ended in which way, and the seconds they took. `span` is another one where a trace is kept."""

    def __init__(self) -> None:
        self.span: Span = no_span
        self.remember: Callable[[str], None] = lambda _asked: None
        self._ended = {(name, DONE): (0, 0.0) for name in STEPS}
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def step(self, name: str, asked: str | None = None) -> Iterator[None]:
        """`asked`: the id of what was asked for earlier, in a span that did `remember` it."""
        began, outcome = time.monotonic(), DONE
        with self.span(name, asked) as ended:
            try:
                yield
            except BaseException as error:
                outcome = outcome_of(error)
                raise
            finally:
                ended(outcome)
                self._count(name, outcome, time.monotonic() - began)

    def ended(self) -> list[tuple[str, str, int, float]]:
        """Each step, how it ended, how often, and the seconds of all of these together."""
        with self._lock:
            return [(*of, *sums) for of, sums in sorted(self._ended.items())]

    def _count(self, name: str, outcome: str, seconds: float) -> None:
        with self._lock:
            count, before = self._ended.get((name, outcome), (0, 0.0))
            self._ended[name, outcome] = (count + 1, before + seconds)


def outcome_of(error: BaseException) -> str:
    """The code of a refusal's kind: one that another service sent is anybody's text, and so is every message."""
    if isinstance(error, LabelDPError):
        return type(error).code
    return str(getattr(type(error), "outcome", INTERNAL))
