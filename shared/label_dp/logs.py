"""The log: one line per event on stderr, plain or JSON, and never a label, a body, a query value or a key.

`label_dp.access` has one line per answered request, with the route's template in place of its path. Routes whose effort
or outcome depends on labels have none, as they have no metric: how many there were, how they ended and how long they
took would be derived from labels and not charged for (invariant charge-for-labels). An error is logged by its place, in
module and line, without its text and values, which may be labels.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Literal, TextIO

LogFormat = Literal["plain", "json"]
FIELDS, EVENT = "label_dp_fields", "label_dp_event"
ROOT = "label_dp"  # of our loggers
# libraries whose lines hold no values: the server, the database's migrations, what sends traces
PLAIN_SPOKEN = ("uvicorn", "alembic", "opentelemetry")

access = logging.getLogger("label_dp.access")
request_id: ContextVar[str] = ContextVar("request_id", default="")
OURS = ("labels_party", "features_party", __name__.split(".", 1)[0])


def event(name: str, **fields: Any) -> dict[str, object]:
    """Return the `extra` of a log line: the event's stable name, and its members."""
    return {EVENT: name, FIELDS: fields}


def log_format_of(party: str) -> LogFormat:
    """Return the format in the environment, before and independently of validated settings."""
    value = os.environ.get(f"{party.upper().replace(' ', '_').replace('-', '_')}_LOG_FORMAT", "")
    return "json" if value.strip() == "json" else "plain"


def announce(log_format: LogFormat, name: str, text: str, **fields: Any) -> None:
    """Log a line about the service itself for its operator: as it is, or as an event if lines are JSON."""
    if log_format == "json":
        logging.getLogger("label_dp").info(text, extra=event(name, **fields))
    else:
        print(text, file=sys.stderr, flush=True)  # noqa: T201 - the command line's own output


def log_internal(log: logging.Logger, what: str, error: BaseException, **fields: Any) -> None:
    """Log a bug: what was running, the kind of error, and its place."""
    kind, at = type(error).__name__, place_of(error.__traceback__)
    extra = event("internal-error", **fields, error=kind, at=at)
    log.error("%s: internal error of type %s at %s", what, kind, at, extra=extra)


class JsonLines(logging.Formatter):
    """Formatter of one JSON object per line: time, level, event, logger, message, request id, and the fields of the
    event."""

    converter = staticmethod(time.gmtime)

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%SZ"),
            "level": record.levelname.lower(),
            "event": getattr(record, EVENT, "line"),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if known := request_id.get():
            line["request_id"] = known
        line |= getattr(record, FIELDS, {})
        return json.dumps(line, ensure_ascii=False)


def lines_to(stream: TextIO | None = None, log_format: LogFormat = "plain") -> logging.Handler:
    """Return a handler that writes lines without values to `stream`, by default stderr."""
    handler = logging.StreamHandler(stream)
    handler.addFilter(_without_values)
    _give_format(handler, log_format)
    return handler


def configure_logging(log_format: LogFormat = "plain") -> None:
    """Log to stderr from now on; our own loggers and the server's, the chatty ones of others only from warnings on.

    A later call changes the format.
    """
    root = logging.getLogger()
    ours = [handler for handler in root.handlers if _without_values in handler.filters]
    for handler in ours:
        _give_format(handler, log_format)
    if not root.handlers:
        root.addHandler(lines_to(log_format=log_format))
        root.setLevel(logging.INFO)
    for noisy in ("alembic", "httpx", "httpcore"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    logging.getLogger("uvicorn").setLevel(logging.ERROR)  # warns of every malformed request of any stranger


def _give_format(handler: logging.Handler, log_format: LogFormat) -> None:
    plain = logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s")
    handler.setFormatter(JsonLines() if log_format == "json" else plain)


def _without_values(record: logging.LogRecord) -> bool:
    """Keep the kind and the place of an error; its text, its traceback and lines of libraries may contain labels."""
    of = record.name.split(".", 1)[0]
    text = record.getMessage().strip() if of in (ROOT, *PLAIN_SPOKEN) else f"{of}: a line that may hold values"
    if record.exc_info and record.exc_info[0] is not None:
        kind, at = record.exc_info[0].__name__, place_of(record.exc_info[2])
        text += f" ({kind} at {at})"
        vars(record).update(event("internal-error", **getattr(record, FIELDS, {}), error=kind, at=at))
    record.msg, record.args = text, ()
    record.exc_info = record.exc_text = record.stack_info = None
    return True


def coarse_milliseconds(seconds: float) -> int:
    """Round up to 1, 2 or 5 times a power of ten."""
    scale, milliseconds = 1, max(1.0, seconds * 1000)
    while True:
        for step in (1, 2, 5):
            if milliseconds <= step * scale:
                return step * scale
        scale *= 10


class Sparse:
    """Limit for repeated events: one line per `seconds` and subject, with the count since."""

    MOST_SUBJECTS = 1024

    def __init__(self, seconds: float = 60.0, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds, self.clock = seconds, clock
        self._seen: OrderedDict[str, tuple[float, int]] = OrderedDict()
        self._lock = threading.Lock()

    def due(self, subject: str) -> int:
        """Return how many events of `subject` a line now covers; 0 if it is too early for another line."""
        now = self.clock()
        with self._lock:
            last, pending = self._seen.pop(subject, (float("-inf"), 0))
            if now - last < self.seconds:
                self._seen[subject] = (last, pending + 1)
                return 0
            self._seen[subject] = (now, 0)
            while len(self._seen) > self.MOST_SUBJECTS:
                self._seen.popitem(last=False)
            return pending + 1


def place_of(traceback: TracebackType | None) -> str:
    """Format `labels_party.labels.intake:120`, followed in brackets by the line of a library that our line called."""
    own = last = ""
    while traceback is not None:
        module = str(traceback.tb_frame.f_globals.get("__name__", "?"))
        last = f"{module}:{traceback.tb_lineno}"
        if module.split(".", 1)[0] in OURS:
            own = last
        traceback = traceback.tb_next
    if own in ("", last):
        return last or "?"
    return f"{own} (in {last})"
