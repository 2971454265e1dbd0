"""Listening: the address is printed once it is bound; a busy port is bad input, not a crash. Meanwhile Python's own
output, uncaught errors and warnings, is logged without its text."""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from label_dp.errors import InvalidInput
from label_dp.http.probes import family_of
from label_dp.logs import announce, configure_logging, event, log_internal

if TYPE_CHECKING:
    from fastapi import FastAPI

    from label_dp.http.settings import ServiceSettings

# building the OpenAPI document takes half a second, once: in a thread after the start, so that nobody waits for it
DESCRIBED_SECONDS = 2.0
log = logging.getLogger("label_dp.process")


def serve(app: FastAPI, host: str, port: int, name: str, settings: ServiceSettings) -> None:
    """Serve until a signal ends it; port 0 picks a free one. Raises InvalidInput if the address cannot be bound.

    After SIGTERM or SIGINT no request is accepted, running ones may end within `settings.shutdown_seconds`, then the
    application stops its worker.
    """
    import uvicorn

    from label_dp.http.connection import MOST_CONNECTIONS, Connection

    configure_logging(settings.log_format)
    os.umask(0o077)  # files are private to the service's user
    family = family_of(host)
    try:
        listener = socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, OverflowError) as error:
        raise InvalidInput(
            f"The {name} cannot listen on {host}, port {port} ({_reason(error)}). Choose another address with --host "
            "or --port."
        ) from None
    _serve_beside(app, host, settings, name)
    # accepted connections inherit it; asyncio sets it itself only on sockets that name their protocol, and without it
    # an answer waits 40 ms for the acknowledgement of its headers
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    shown_host = f"[{host}]" if family == socket.AF_INET6 else host
    url = f"http://{shown_host}:{listener.getsockname()[1]}"
    announce(settings.log_format, "listening", f"{name}: pages for people at {url}/, every call at {url}/docs", url=url)
    config = uvicorn.Config(
        app,
        http=Connection,
        loop="asyncio",  # another installed loop may have another `sendfile`
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=MOST_CONNECTIONS,
        proxy_headers=bool(settings.proxy_list),  # headers of other senders are ignored
        forwarded_allow_ips=list(settings.proxy_list),
        timeout_graceful_shutdown=settings.shutdown_seconds,
    )
    server = uvicorn.Server(config)
    app.state.stopping = lambda: server.should_exit  # for answers without an end of their own
    described = threading.Timer(DESCRIBED_SECONDS, app.openapi)
    described.daemon = True
    described.start()
    if app.state.services.sign_in is not None:
        threading.Thread(target=app.state.services.sign_in.issuer.check, daemon=True).start()
    with quiet_python():
        server.run(sockets=[listener])


def _serve_beside(app: FastAPI, host: str, settings: ServiceSettings, name: str) -> None:
    """Serve `/metrics` and probes on ports of their own, from threads that end with the process. Raises
    InvalidInput."""
    from prometheus_client import start_http_server

    def metrics(port: int) -> None:
        start_http_server(port, host, app.state.metrics)

    def probes(port: int) -> None:
        app.state.probes.serve(host, port)

    for what, port, begin in (("metrics", settings.metrics_port, metrics), ("probes", settings.probes_port, probes)):
        try:
            if port:
                begin(port)
        except (OSError, OverflowError) as error:
            setting = f"{settings.party.upper().replace('-', '_')}_{what.upper()}_PORT"
            raise InvalidInput(
                f"The {name} cannot serve its {what} on {host}, port {port} ({_reason(error)}). Choose another port "
                f"with {setting}."
            ) from None


def _reason(error: OSError | OverflowError) -> str:
    number = getattr(error, "errno", None) or 0
    return os.strerror(number) if number > 0 else "no such address"


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
