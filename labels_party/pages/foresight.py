"""Background computation of plans: pages never wait for one, and show known ones at once.

Cached plans come from public and already private facts, so the time of an answer tells nothing about labels. The
newest question goes first: somebody who moves a slider waits for its last position.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Hashable, Sequence
from typing import Any

from label_dp.pages import pictures
from label_dp.privacy import Epsilon
from label_dp.schemas.replies import PlanOut
from labels_party.message.preview import outline
from labels_party.planning import Question

KEPT = 1_000  # answers in the cache, of some kilobytes each
PAUSE = 0.3  # seconds before work begins: a slider may still move
WAITING = 32  # most waiting questions; the oldest are dropped, and pages that still need them ask again


class Foresight:
    """Cache of plans and queue of questions. At most one thread works; it ends when the queue is empty."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[Hashable, PlanOut | Exception] = {}
        self._least: dict[Hashable, float | None] = {}
        self._waiting: dict[Hashable, Question] = {}
        self._current: Hashable = None  # key of the question in work
        self._warm = self._closed = False
        self._thread: threading.Thread | None = None  # the worker

    def look(self, question: Question) -> PlanOut | None:
        """Return the answer if it is known. Raises the exception of a failed computation once; `ask` then retries."""
        key = _key(question)
        with self._lock:
            answer = self._kept.get(key)
            if isinstance(answer, Exception):
                del self._kept[key]
                raise answer
        return answer

    def least(self, question: Question, epsilons: Sequence[Epsilon]) -> dict[Epsilon, float]:
        """Return the `outline` of each ε, at once."""
        about = (question.population.id, _release(question), question.rows)
        with self._lock:
            missing = [each for each in epsilons if (*about, each.nano) not in self._least]
        if missing:
            errors = outline(question.population, missing, question.rows, question.given)
            with self._lock:
                self._least |= {(*about, each.nano): errors.get(each) for each in missing}
                _shorten(self._least)
        with self._lock:
            values = {each: self._least.get((*about, each.nano)) for each in epsilons}
        return {each: value for each, value in values.items() if value is not None}

    def warm(self) -> None:
        """Load the drawing code in a thread: the first picture would take a second."""
        if not self._warm:
            self._warm = True
            threading.Thread(target=pictures.warm, name="warm", daemon=True).start()

    def awaited(self, question: Question) -> bool:
        with self._lock:
            return _key(question) in (self._current, *self._waiting)

    def ask(self, question: Question) -> None:
        """Queue a question before all others."""
        key = _key(question)
        with self._lock:
            if self._closed or key in self._kept or key == self._current:
                return
            self._waiting.pop(key, None)
            self._waiting[key] = question
            while len(self._waiting) > WAITING:
                del self._waiting[next(iter(self._waiting))]
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="foresight", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Clear the queue and wait for the worker: no solver may be running when the process ends."""
        with self._lock:
            self._closed = True
            self._waiting.clear()
            working = self._thread
        if working is not None:
            working.join()

    def _work(self) -> None:
        while True:
            time.sleep(PAUSE)  # also leaves the processor to pages between two answers
            with self._lock:
                if not self._waiting:
                    self._thread = None
                    return
                key, question = self._waiting.popitem()  # the newest
                self._current = key
            try:
                answer: PlanOut | Exception = question.answer()
            except Exception as error:  # `look` raises it; this thread goes on with the next
                answer = error
            with self._lock:
                self._kept[key], self._current = answer, None
                _shorten(self._kept)


def _key(question: Question) -> Hashable:
    """Return all that an answer depends on. Published priors and declared populations never change."""
    request = question.asked.model_dump_json(exclude={"n", "batch"})
    return question.population.id, _release(question), question.rows, str(question.spent), request


def _release(question: Question) -> str | None:
    return None if question.given is None else question.given.release


def _shorten(cache: dict[Hashable, Any]) -> None:
    while len(cache) > KEPT:
        del cache[next(iter(cache))]
