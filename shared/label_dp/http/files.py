"""Files served whole or by range, sent by the kernel if the connection supports it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi.concurrency import run_in_threadpool
from fastapi.responses import FileResponse

from label_dp.errors import PreconditionFailed, RangeNotSatisfiable
from label_dp.http.asgi import Message, Receive, Scope, Send, headers_of

SEND_FILE = "label_dp.send_file"  # extension of a connection: sends bytes of an open file
_RANGE = re.compile(r"bytes=(\d{1,18})-(\d{0,18})", re.ASCII)


@dataclass(frozen=True)
class _Span:
    """Bytes `start` to `stop` of a file of `size` bytes; `whole` without a range."""

    start: int
    stop: int
    size: int
    whole: bool


class ServedFile(FileResponse):
    """Response with Range, If-Range and If-Match; the caller passes `ETag` among the headers. Raises PreconditionFailed
    if the caller wants another version, RangeNotSatisfiable instead of the framework's plain text."""

    chunk_size = 1 << 18

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._refuse_other(headers_of(scope).get(b"if-match", b"*").decode("latin-1"))
        span = await run_in_threadpool(self._span, scope) if SEND_FILE in scope.get("extensions", {}) else None
        if span is None:
            await self._in_pieces(scope, receive, send)
        else:
            await self._by_the_kernel(span, scope, send)

    def _refuse_other(self, if_match: str) -> None:
        if if_match != "*" and self.headers["etag"] not in [tag.strip() for tag in if_match.split(",")]:
            raise PreconditionFailed("The file is not the version that If-Match names; fetch it from its beginning.")

    def _span(self, scope: Scope) -> _Span | None:
        """Return the requested bytes; None for several ranges or one outside the file, which the framework handles."""
        self.stat_result = Path(self.path).stat()
        self.set_stat_headers(self.stat_result)
        size, headers = self.stat_result.st_size, headers_of(scope)
        whole = _Span(0, size, size, whole=True)
        if b"range" not in headers:
            return whole
        if b"if-range" in headers and not self._should_use_range(headers[b"if-range"].decode("latin-1")):
            return whole
        match = _RANGE.fullmatch(headers[b"range"].decode("latin-1"))
        if match is None:
            return None
        start = int(match[1])
        stop = min(int(match[2]) + 1, size) if match[2] else size
        return _Span(start, stop, size, whole=False) if start < stop else None

    async def _by_the_kernel(self, span: _Span, scope: Scope, send: Send) -> None:
        headers: Any = self.headers
        if not span.whole:
            headers["content-range"] = f"bytes {span.start}-{span.stop - 1}/{span.size}"
            headers["content-length"] = str(span.stop - span.start)
        file = await run_in_threadpool(open, self.path, "rb")
        try:
            status = 200 if span.whole else 206
            await send({"type": "http.response.start", "status": status, "headers": self.raw_headers})
            await scope["extensions"][SEND_FILE](file, span.start, span.stop - span.start)
        finally:
            file.close()

    async def _in_pieces(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = False

        async def watched(message: Message) -> None:
            nonlocal refused
            refused = refused or (message["type"] == "http.response.start" and message["status"] >= 400)
            if not refused:
                await send(message)

        await super().__call__(scope, receive, watched)
        if refused:
            raise RangeNotSatisfiable("The Range header names no bytes of this file; ask for bytes=FIRST-LAST.")
