"""The log: one line per event on stderr, plain or JSON, and never a label, a body, a query value or a key.

`label_dp.access` has one line per answered request, with the route's template in place of its path. Routes whose effort
or outcome depends on labels have none, as they have no metric: how many there were, how they ended and how long they
took would be derived from labels and not charged for (invariant 1).
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Literal

LogFormat = Literal["plain", "json"]
FIELDS = "label_dp_fields"

access = logging.getLogger("label_dp.access")


class JsonLines(logging.Formatter):
    """One JSON object per line: time, level, logger, message and the fields of the event."""

    converter = staticmethod(time.gmtime)

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%SZ"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= getattr(record, FIELDS, {})
        return json.dumps(line, ensure_ascii=False)


def configure_logging(log_format: LogFormat = "plain") -> None:
    """Log to stderr from now on; our own loggers and the server's, the chatty ones of others only from warnings on."""
    handler = logging.StreamHandler()
    if log_format == "json":
        handler.setFormatter(JsonLines())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    handler.addFilter(_without_traceback)
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    for noisy in ("alembic", "httpx", "httpcore"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    logging.getLogger("uvicorn").setLevel(logging.ERROR)  # warns of every malformed request of any stranger


def _without_traceback(record: logging.LogRecord) -> bool:
    """Keeps the kind of an error; its text and its traceback may hold labels."""
    if record.exc_info and record.exc_info[0] is not None:
        record.msg, record.args = f"{record.getMessage().strip()} ({record.exc_info[0].__name__})", ()
    record.exc_info = record.exc_text = None
    return True


def coarse_milliseconds(seconds: float) -> int:
    """Rounded up to 1, 2 or 5 times a power of ten."""
    scale, milliseconds = 1, max(1.0, seconds * 1000)
    while True:
        for step in (1, 2, 5):
            if milliseconds <= step * scale:
                return step * scale
        scale *= 10


class Sparse:
    """Says of an event that repeats whether to log it now: once per `seconds` and subject, with the count since."""

    MOST_SUBJECTS = 1024

    def __init__(self, seconds: float = 60.0, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds, self.clock = seconds, clock
        self._seen: OrderedDict[str, tuple[float, int]] = OrderedDict()
        self._lock = threading.Lock()

    def due(self, subject: str) -> int:
        """How many events of `subject` one line now stands for; 0 if it is too early for another line."""
        now = self.clock()
        with self._lock:
            last, held = self._seen.pop(subject, (float("-inf"), 0))
            if now - last < self.seconds:
                self._seen[subject] = (last, held + 1)
                return 0
            self._seen[subject] = (now, 0)
            while len(self._seen) > self.MOST_SUBJECTS:
                self._seen.popitem(last=False)
            return held + 1
