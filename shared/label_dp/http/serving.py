"""Listening: the address is printed once it is bound; a busy port is bad input, not a crash. Meanwhile Python's own
output, uncaught errors and warnings, is logged without its text."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from label_dp.errors import InvalidInput, Unavailable
from label_dp.http.metrics import SHARED
from label_dp.http.probes import family_of
from label_dp.logs import announce, configure_logging, event, log_internal

if TYPE_CHECKING:
    import uvicorn
    from fastapi import FastAPI

    from label_dp.http.settings import ServiceSettings

# building the OpenAPI document takes half a second, once: in a thread after the start, so that nobody waits for it
DESCRIBED_SECONDS = 2.0
START_SECONDS, START_FAILURE = 60, (1, 2, 3)  # in which a process must show a sign of life; its exit codes then
log = logging.getLogger("label_dp.process")


def serve(
    app: FastAPI, host: str, port: int, name: str, settings: ServiceSettings, processes: int = 1, child: str = ""
) -> None:
    """Serve until a signal ends it; port 0 picks a free one. Raises InvalidInput if the address cannot be bound.

    After SIGTERM or SIGINT no request is accepted, running ones may end within `settings.shutdown_seconds`, then the
    application stops its worker. With several `processes` this one has the worker, metrics and probes, and applications
    made by `child` answer the calls of the one socket.
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
        child if processes > 1 else app,
        factory=processes > 1,
        workers=processes,
        timeout_worker_healthcheck=START_SECONDS,
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
    with quiet_python():
        if processes > 1:
            _supervise(app, config, listener, settings)
            return
        server = uvicorn.Server(config)
        app.state.stopping = lambda: server.should_exit  # for answers without an end of their own
        _describe(app)
        server.run(sockets=[listener])


@contextmanager
def together(processes: int) -> Iterator[None]:
    """Have several processes count calls together; to be entered before the library of metrics is loaded."""
    with TemporaryDirectory(prefix="label-dp-metrics-") if processes > 1 else nullcontext() as folder:
        if folder is not None:
            os.environ[SHARED] = folder
        yield


def _supervise(app: FastAPI, config: uvicorn.Config, listener: socket.socket, settings: ServiceSettings) -> None:
    """Start the processes that answer calls, and start one again when it dies; the rest of the service runs here."""
    from uvicorn.supervisors import Multiprocess

    class Supervisor(Multiprocess):
        def keep_subprocess_alive(self) -> None:
            for one in self.processes:  # while this end is open too, one that dies while it is asked is waited for
                one.child_conn.close()
            super().keep_subprocess_alive()

    os.environ[f"{settings.model_config['env_prefix']}WORKER"] = "false"  # theirs
    supervisor = Supervisor(config, [listener])
    app.state.stopping = supervisor.should_exit.is_set
    app.state.probes.answered = lambda: any(one.process.is_alive() for one in supervisor.processes)

    async def play() -> None:
        async with app.router.lifespan_context(app):
            await asyncio.to_thread(supervisor.run)

    asyncio.run(play())
    if any(one.exitcode in START_FAILURE for one in supervisor.processes):
        raise Unavailable("A process that answers calls could not start; the log says why.")


def join(app: FastAPI) -> FastAPI:
    """Make this process, in which uvicorn starts, one of those that answer calls: quiet, and ended with its parent."""
    os.umask(0o077)
    app.state.quiet = ExitStack()
    app.state.quiet.enter_context(quiet_python())
    stop = threading.Event()
    app.state.stopping = stop.is_set
    parent: Any = multiprocessing.parent_process()
    earlier: Any = signal.getsignal(signal.SIGTERM)

    def ended(number: int, frame: Any) -> None:
        stop.set()
        earlier(number, frame)

    def follow() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)

    signal.signal(signal.SIGTERM, ended)
    threading.Thread(target=follow, daemon=True).start()
    _describe(app)
    return app


def _describe(app: FastAPI) -> None:
    """Soon build the OpenAPI document, and ask the issuer for its keys, while others are served."""
    described = threading.Timer(DESCRIBED_SECONDS, app.openapi)
    described.daemon = True
    described.start()
    if app.state.services.sign_in is not None:
        threading.Thread(target=app.state.services.sign_in.issuer.check, daemon=True).start()


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
