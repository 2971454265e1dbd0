"""Uploads: bodies of any size, taken in as they arrive by a thread of their own, with their `Idempotency-Key`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio.from_thread
import anyio.to_thread
from anyio.lowlevel import current_token
from fastapi import Request

from label_dp.columnar.budget import FREE, DecodeBudget, needs
from label_dp.errors import InvalidFile
from label_dp.http.bodies import is_small
from label_dp.http.gathered import Gathered
from label_dp.http.threads import Threads
from label_dp.schemas.events import DataSet
from label_dp.store.apikeys import Principal
from label_dp.store.idempotency import Claim, IdempotentCall, Reply
from labels_party.bootstrap import Services
from labels_party.labels.chunks import Chunks
from labels_party.labels.events.bodies import EventRows, event_rows
from labels_party.labels.events.files import parquet_rows
from labels_party.labels.events.intake import EventIntake, EventUpload
from labels_party.labels.formats import Format, format_of
from labels_party.labels.formats.formats import FORMATS, JSON, NDJSON, PARQUET
from labels_party.labels.formats.source import WORKING, Whole, text_need
from labels_party.labels.intake import Intake
from labels_party.labels.small_uploads import Small

AT_ONCE = 1 << 20  # bytes that are waited for before a thread is taken
AT_LEAST = 1 << 19  # bytes handed to the thread at once, but at the end
SOON = 0.25  # seconds for a body to have come; one that takes longer claims its key meanwhile

_At = tuple[Intake, DecodeBudget, str, bool]
# an owner's apart: what it is refused depends on labels, and takes time
_together = Gathered[Small, Reply](lambda at, uploads: _add(at, uploads), lambda small: small.size)
_events_together = Gathered[EventUpload, Reply](lambda at, uploads: _add_events(at, uploads), lambda one: one.size)
# of uploads on their way, and of those that came whole, which wait for nobody outside
_coming, _come = Threads(32), Threads(32)  # for bodies in pieces, and for those that came whole


class Body:
    """The request's body, read from the event loop's side."""

    def __init__(self, request: Request) -> None:
        self._receive = request.receive
        self._pending: asyncio.Task[Any] | None = None
        self._held: list[bytes] = []
        self._bytes = 0
        self.ended = False

    async def gather(self, seconds: float | None = None, *, least: int = AT_LEAST) -> None:
        """Wait until `least` bytes are held, the body ends or time is up. Raises InvalidFile if the caller left."""
        end = None if seconds is None else asyncio.get_running_loop().time() + seconds
        while not self.ended and self._bytes < least:
            if end is None and self._pending is None:
                message = await self._receive()
            else:
                self._pending = self._pending or asyncio.ensure_future(self._receive())
                left = None if end is None else max(0.0, end - asyncio.get_running_loop().time())
                # the task stays when the time is up: a receive that is cancelled may lose what it had
                done, _ = await asyncio.wait({self._pending}, timeout=left)
                if not done:
                    return
                message, self._pending = self._pending.result(), None
            if message["type"] == "http.disconnect":
                self.ended = True
                raise InvalidFile("The caller went away before the end of the body.")
            found = message.get("body", b"")
            self._held.append(found)
            self._bytes += len(found)
            self.ended = not message.get("more_body", False)

    async def take(self) -> bytes:
        await self.gather()
        return self.held()

    def held(self) -> bytes:
        """What has come and was not taken."""
        found = b"".join(self._held)
        self._held.clear()
        self._bytes = 0
        return found

    @property
    def size(self) -> int:
        """Bytes that have come and were not taken."""
        return self._bytes

    def close(self) -> None:
        if self._pending is not None:
            self._pending.cancel()


class Upload:
    """A body on its way in, for the thread that takes it: a source of bytes, whose keyed MAC is kept where the call has
    a key or is `noted`. `length`: of the body, where it is known."""

    def __init__(
        self,
        ctx: Services,
        body: Body,
        kind: Format,
        call: IdempotentCall,
        path: str,
        columns: Mapping[str, str],
        length: int | None,
        *,
        noted: bool,
    ) -> None:
        self.ctx, self.body, self.kind, self.call, self.columns = ctx, body, kind, call, columns
        self._mac = ctx.idempotency.begun(path) if noted or call.key is not None else None
        self.claim = Claim(call)
        self._seen, self._length = 0, length
        self._loop = current_token()  # whichever thread reads

    def read(self) -> bytes:
        if self.body.ended:  # nothing to wait for
            found = self.body.held()
        else:
            self.claim.renew()
            found = anyio.from_thread.run(self.body.take, token=self._loop)
        if self._mac is not None:
            self._mac.update(found)
        self._seen += len(found)
        if self.kind.text and text_need(self._seen) > FREE:  # a table says what it needs itself
            needs(text_need(self._length) if self._length is not None else WORKING)
        return found

    def mac(self) -> str:
        """Of the whole body, read to its end."""
        while self.read():
            pass
        return "" if self._mac is None else self._mac.hexdigest()

    def chunks(
        self,
        fields: tuple[str, ...],
        classes: bool = False,
        usual: Mapping[str, str] | None = None,
        *,
        nulls: bool = False,
    ) -> Chunks:
        options: dict[str, Any] = {"nulls": nulls, "classes": classes, "columns": self.columns, "usual": usual}
        return self.kind.chunks(self, fields, self.ctx.home.spill, **options)

    def events(self, sets: Collection[DataSet]) -> Iterator[EventRows]:
        """Events of the body, of which rules of these data sets take some."""
        if self.kind is PARQUET:
            return parquet_rows(self, self.ctx.home.spill, sets)
        return event_rows(self.read, lines=self.kind is NDJSON)


async def receive(
    request: Request,
    ctx: Services,
    caller: Principal,
    key: str | None,
    batch: str,
    columns: Mapping[str, str],
    work: Callable[[Upload], Reply],
    *,
    inserts: bool = False,
) -> Mapping[str, Any]:
    """Run `work` on the request's body in a thread; its answer. `columns`: names that a table has for our fields.
    Small texts that the call `inserts` are taken in with others that wait; small binary tables may become large.

    Raises what `work` raises.
    """
    kind, identity = _identity(request, caller)
    call = IdempotentCall(ctx.idempotency, caller.key_id, key, "", batch)
    async with _body(request) as body:
        if inserts and body.ended and kind.text:
            small = _small(ctx, kind, body.held(), call, identity, columns, caller)
            at = ctx.intake, request.app.state.decoding, batch, small.owner
            _, answer = await _together.do(at, small, _come.limiter(ctx.settings.uploads_at_once))
            return answer
        foreign = inserts and caller.role != "owner"
        upload = Upload(ctx, body, kind, call, identity, columns, _length(request, body), noted=foreign)
        return await _run(upload, lambda: work(upload))


async def receive_events(request: Request, ctx: Services, caller: Principal, key: str | None) -> Mapping[str, Any]:
    """Take in the events of the request's body; those of small bodies that wait together. Raises as `EventIntake.add`,
    and UnsupportedMediaType."""
    kind, identity = _identity(request, caller, (JSON, NDJSON, PARQUET))
    call = IdempotentCall(ctx.idempotency, caller.key_id, key, "")
    async with _body(request) as body:
        if body.ended and kind.text:
            text = body.held()
            call.body_mac = partial(_mac_of, ctx, identity, text)
            small = EventUpload(lambda _: event_rows(Whole(text).read, lines=kind is NDJSON), call, len(text))
            at = ctx.events, request.app.state.decoding
            _, answer = await _events_together.do(at, small, _come.limiter(ctx.settings.uploads_at_once))
            return answer
        upload = Upload(ctx, body, kind, call, identity, {}, _length(request, body), noted=False)
        return await _run(upload, lambda: ctx.events.add(EventUpload(upload.events, call)))


def _identity(request: Request, caller: Principal, formats: Sequence[Format] = FORMATS) -> tuple[Format, str]:
    """The format of the body, and what its MAC stands for: the caller, the method where it is not the usual one, and
    what decides on the effect."""
    kind = format_of(request.headers.get("content-type"), formats)
    method = "" if request.method in ("POST", "PUT") else request.method + " "
    path = request.scope["path"] + (f"?{query.decode('latin-1')}" if (query := request.scope["query_string"]) else "")
    return kind, f"{caller.key_id} {kind.types[0]} {method}{path}"


def _length(request: Request, body: Body) -> int | None:
    declared = request.headers.get("content-length")
    return body.size if body.ended else None if declared is None else int(declared)


async def _run(upload: Upload, work: Callable[[], Reply]) -> Mapping[str, Any]:
    """Run `work`, which reads the upload, in a thread; its answer."""
    upload.call.body_mac = upload.mac

    def run() -> Reply:
        with upload.claim:
            return work()

    threads = (_come if upload.body.ended else _coming).limiter(upload.ctx.settings.uploads_at_once)
    _, answer = await anyio.to_thread.run_sync(run, limiter=threads)
    return answer


def _add(at: _At, uploads: Sequence[Small]) -> list[Reply | Exception]:
    intake, budget, batch, _ = at
    with budget.share():  # of all of them together, whichever call's task this is
        needs(text_need(sum(small.size for small in uploads)))
        return intake.add_small(batch, uploads)


def _small(
    ctx: Services,
    kind: Format,
    text: bytes,
    call: IdempotentCall,
    path: str,
    columns: Mapping[str, str],
    caller: Principal,
) -> Small:
    def chunks(fields: tuple[str, ...], classes: bool, usual: Mapping[str, str] | None = None) -> Chunks:
        return kind.chunks(Whole(text), fields, ctx.home.spill, classes=classes, columns=columns, usual=usual)

    call.body_mac = partial(_mac_of, ctx, path, text)
    return Small(chunks, call, caller.role == "owner", len(text))


def _mac_of(ctx: Services, identity: str, text: bytes) -> str:
    mac = ctx.idempotency.begun(identity)
    mac.update(text)
    return mac.hexdigest()


def _add_events(at: tuple[EventIntake, DecodeBudget], uploads: Sequence[EventUpload]) -> list[Reply | Exception]:
    intake, budget = at
    with budget.share():
        needs(text_need(sum(upload.size for upload in uploads)))
        return intake.add_small(uploads)


@asynccontextmanager
async def _body(request: Request) -> AsyncIterator[Body]:
    """The body of a request, of which as much has come as is waited for before a thread is taken."""
    body = Body(request)
    try:
        # a small one that takes its time holds no thread meanwhile
        await body.gather(None if is_small(request.headers.get("content-length")) else SOON, least=AT_ONCE)
        yield body
    finally:
        body.close()
