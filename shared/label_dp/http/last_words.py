"""Python's own output while a service runs, uncaught errors and warnings: logged without their text."""

from __future__ import annotations

import logging
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from label_dp.logs import event, log_internal

log = logging.getLogger("label_dp.process")


@contextmanager
def quiet_python() -> Iterator[None]:
    """Redirect Python's own output to the log until the end of the block: texts of errors and warnings may quote
    labels."""
    before = (sys.excepthook, threading.excepthook, sys.unraisablehook, warnings.showwarning)
    raising, logging.raiseExceptions = logging.raiseExceptions, False  # a line that fails is lost, not quoted
    sys.excepthook = lambda _kind, error, _traceback: log_internal(log, "the process", error)
    threading.excepthook = _of_thread
    sys.unraisablehook = _unraisable
    warnings.showwarning = _warned
    try:
        yield
    finally:
        sys.excepthook, threading.excepthook, sys.unraisablehook, warnings.showwarning = before
        logging.raiseExceptions = raising


def _of_thread(args: threading.ExceptHookArgs) -> None:
    if args.exc_value is not None and args.exc_type is not SystemExit:
        log_internal(log, f"thread {args.thread.name if args.thread else '?'}", args.exc_value)


def _unraisable(args: Any) -> None:
    if args.exc_value is not None:
        log_internal(log, "the process, on the way out of an object", args.exc_value)


def _warned(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: Any = None
) -> None:
    kind, at = category.__name__, f"{filename.rsplit('/', 1)[-1]}:{lineno}"
    log.warning("a warning of Python: %s at %s", kind, at, extra=event("warning", error=kind, at=at))
