"""Plans that are worked out beside the pages: a page never waits for one, and one that is known is there at once.

What is kept is made of public and already private facts, as every plan is, so that how long an answer takes tells
nothing of labels. The newest question goes first, since whoever moves a slider waits for the last place of it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Hashable, Sequence
from typing import Any

from label_dp.pages import pictures
from label_dp.privacy import Epsilon
from labels_party.message.preview import outline
from labels_party.planning import Question

KEPT = 1_000  # answers; of each some kilobytes
PAUSE = 0.3  # seconds before work begins, in which a slider moves on
WAITING = 32  # questions; older ones are forgotten, and asked again by whoever still looks


class Foresight:
    """One thread at a time works, and ends when nothing waits."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[Hashable, dict[str, Any] | Exception] = {}
        self._least: dict[Hashable, float | None] = {}
        self._waiting: dict[Hashable, Question] = {}
        self._current: Hashable = None  # the key of what is worked on
        self._warm = self._closed = False
        self._thread: threading.Thread | None = None  # that works

    def look(self, question: Question) -> dict[str, Any] | None:
        """The answer, if it is known. Raises what came in its place, once: whoever asks again has it tried again."""
        key = _key(question)
        with self._lock:
            found = self._kept.get(key)
            if isinstance(found, Exception):
                del self._kept[key]
                raise found
        return found

    def least(self, question: Question, epsilons: Sequence[Epsilon]) -> dict[Epsilon, float]:
        """What each ε gives at least (`outline`), at once."""
        about = (question.population.id, _release(question), question.rows)
        with self._lock:
            missing = [each for each in epsilons if (*about, each.nano) not in self._least]
        if missing:
            found = outline(question.population, missing, question.rows, question.given)
            with self._lock:
                self._least |= {(*about, each.nano): found.get(each) for each in missing}
                _shorten(self._least)
        with self._lock:
            kept = {each: self._least.get((*about, each.nano)) for each in epsilons}
        return {each: value for each, value in kept.items() if value is not None}

    def warm(self) -> None:
        """Whoever opens the form will want a picture, and the first one takes a second: load what draws them."""
        if not self._warm:
            self._warm = True
            threading.Thread(target=pictures.warm, name="warm", daemon=True).start()

    def awaited(self, question: Question) -> bool:
        with self._lock:
            return _key(question) in (self._current, *self._waiting)

    def ask(self, question: Question) -> None:
        """Have the answer worked out, before all that waits."""
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
        """Forget what waits, and wait for what is worked on: a solver must not be running when the process ends."""
        with self._lock:
            self._closed = True
            self._waiting.clear()
            working = self._thread
        if working is not None:
            working.join()

    def _work(self) -> None:
        while True:
            time.sleep(PAUSE)  # also lets pages have the processor between two answers
            with self._lock:
                if not self._waiting:
                    self._thread = None
                    return
                key, question = self._waiting.popitem()  # the newest
                self._current = key
            try:
                found: dict[str, Any] | Exception = question.answer()
            except Exception as error:  # kept for whoever looks; this thread goes on with the next
                found = error
            with self._lock:
                self._kept[key], self._current = found, None
                _shorten(self._kept)


def _key(question: Question) -> Hashable:
    """All that an answer depends on: a published prior never changes, nor does a declared population."""
    asked = question.asked.model_dump_json(exclude={"n", "batch"})
    return question.population.id, _release(question), question.rows, str(question.spent), asked


def _release(question: Question) -> str | None:
    return None if question.given is None else question.given.release


def _shorten(kept: dict[Hashable, Any]) -> None:
    while len(kept) > KEPT:
        del kept[next(iter(kept))]
