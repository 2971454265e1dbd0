"""Transport of a blocking client: through the proxies of the environment, each request within its time (`budgets`)."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import httpcore
import httpx

from label_dp.client.budgets import POLL_SECONDS, Budget, request_seconds
from label_dp.client.proxies import proxy_of, variable_on
from label_dp.client.tls import machine_authorities

PIECE = 1 << 16
MOST_ADDRESSES = 8  # of a name, tried in turn
USUAL_SECONDS = 30.0


class Transport(httpx.BaseTransport):
    """Transport with `seconds` a request (`Budget`), within the time `within` of all requests together. `tls`: trust;
    True means the machine's authorities. `direct`: through no proxy."""

    def __init__(
        self, seconds: float, *, tls: ssl.SSLContext | bool = True, within: Budget | None = None, direct: bool = False
    ) -> None:
        self.seconds, self.tls, self.within, self.direct = seconds, tls, within, direct
        self._pools: dict[tuple[str | None, bool], httpcore.ConnectionPool] = {}

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request. Raises InvalidSettings for a variable that names no proxy, or no certificates."""
        url, extensions = request.url, request.extensions
        budget = Budget(request_seconds(self.seconds, request), self.within)
        waits = extensions.get("timeout", {})
        # httpcore hands each of these to the connection as it is
        extensions["timeout"] = {of: Wait(USUAL_SECONDS if w is None else w, budget) for of, w in waits.items()}
        variable = None if self.direct else variable_on(url)
        core_request = httpcore.Request(
            request.method,
            httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
            headers=request.headers.raw,
            content=request.stream,
            extensions=extensions,
        )
        with _as_httpx(variable):
            answer = self._pool(variable, url.scheme == "https").handle_request(core_request)
        extra = {**answer.extensions, "proxy": variable}
        body = _Body(answer.stream, variable)
        return httpx.Response(answer.status, headers=answer.headers, stream=body, extensions=extra)

    def close(self) -> None:
        for pool in self._pools.values():
            pool.close()

    def _pool(self, variable: str | None, secure: bool) -> httpcore.ConnectionPool:
        if secure and self.tls is True:  # read on demand: it takes a while
            self.tls = machine_authorities()
        way = variable, secure
        if way not in self._pools:
            named = None if variable is None else proxy_of(variable)
            self._pools[way] = httpcore.ConnectionPool(
                self.tls if isinstance(self.tls, ssl.SSLContext) else None,
                proxy=None if named is None else httpcore.Proxy(str(named.url), auth=named.raw_auth),
                max_keepalive_connections=20,
                keepalive_expiry=5.0,
                network_backend=_Backend(),
            )
        return self._pools[way]


class Wait(float):
    """Seconds of one wait, and the budget of its request."""

    def __new__(cls, seconds: float, budget: Budget) -> Wait:
        wait = super().__new__(cls, seconds)
        wait.budget = budget
        return wait

    budget: Budget


class _Clock:
    """Remaining time of one wait and of its budget."""

    def __init__(self, wait: float | None) -> None:
        self.budget = wait.budget if isinstance(wait, Wait) else None
        self.end = time.monotonic() + (USUAL_SECONDS if wait is None else wait)

    def left(self) -> float:
        """Return the remaining seconds. Raises Late, TimeoutError."""
        remaining = self.end - time.monotonic()
        if remaining <= 0:
            raise TimeoutError("nothing came, or went, for as long as may be")
        return max(remaining if self.budget is None else min(remaining, self.budget.left()), 0.001)

    def moved(self, count: int) -> None:
        if self.budget is not None:
            self.budget.moved(count)


class _Stream(httpcore.NetworkStream):
    """Connection whose waits end with their budget, also in the middle of one."""

    def __init__(self, inner: httpcore.NetworkStream) -> None:
        self.inner = inner

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        clock = _Clock(timeout)
        while True:
            remaining = _left(clock, httpcore.ReadTimeout)
            try:
                data = self.inner.read(max_bytes, min(remaining, POLL_SECONDS))
            except httpcore.ReadTimeout:
                continue
            clock.moved(len(data))
            return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        line = self.inner.get_extra_info("socket")
        if not isinstance(line, ssl.SSLSocket) and self.inner.get_extra_info("ssl_object") is not None:
            self.inner.write(buffer, timeout)  # TLS within the TLS of a proxy
            return
        rest = memoryview(buffer)
        while rest:
            clock = _Clock(timeout)
            count = 0
            while not count:
                remaining = _left(clock, httpcore.WriteTimeout)
                try:
                    line.settimeout(min(remaining, POLL_SECONDS))
                    count = line.send(rest[:PIECE])
                except TimeoutError:
                    continue
                except OSError as error:
                    raise httpcore.WriteError(str(error)) from None
            clock.moved(count)
            rest = rest[count:]

    def close(self) -> None:
        self.inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        remaining = _left(_Clock(timeout), httpcore.ConnectTimeout)
        return _Stream(self.inner.start_tls(ssl_context, server_hostname, remaining))

    def get_extra_info(self, info: str) -> Any:
        return self.inner.get_extra_info(info)


class _Backend(httpcore.SyncBackend):
    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        """Connect to the first address of the name that answers, all tries within one time."""
        clock = _Clock(timeout)
        try:
            entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise httpcore.ConnectError(f"the name has no address: {error.strerror}") from None
        except (UnicodeError, OverflowError):
            raise httpcore.UnsupportedProtocol("this is no name of a host, or no port") from None
        failure: Exception = httpcore.ConnectError("the name has no address")
        for entry in entries[:MOST_ADDRESSES]:
            remaining = _left(clock, httpcore.ConnectTimeout)
            try:
                stream = super().connect_tcp(str(entry[4][0]), port, remaining, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
            else:
                return _Stream(stream)
        raise failure


def _left(clock: _Clock, kind: Callable[[str], Exception]) -> float:
    try:
        return clock.left()
    except TimeoutError as error:
        raise kind(str(error)) from None


class _Body(httpx.SyncByteStream):
    def __init__(self, inner: Any, variable: str | None) -> None:
        self.inner, self.variable = inner, variable

    def __iter__(self) -> Iterator[bytes]:
        with _as_httpx(self.variable):
            yield from self.inner

    def close(self) -> None:
        self.inner.close()


@contextmanager
def _as_httpx(variable: str | None) -> Iterator[None]:
    """Raise failures of httpcore as those of httpx, with the `variable` that names the proxy on the way."""
    try:
        yield
    except Exception as error:
        if type(error).__module__.partition(".")[0] != "httpcore":
            raise
        kind = getattr(httpx, type(error).__name__, httpx.TransportError)
        failure: httpx.TransportError = kind(str(error))
        failure.proxy = variable  # type: ignore[attr-defined]  # read by `peer`
        raise failure from None
