"""`Idempotency-Key` of POST calls: the same request gets the same answer and has its effect once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from fastapi import Header

from features_party.bootstrap import Services
from features_party.storage.idempotency import MAX_KEY, Claim
from shared.service.apikeys import Principal

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description="Repeat a call safely: the same key and request get the same answer, and there is one effect.",
        max_length=MAX_KEY,
    ),
]
READ = 1 << 20


def fingerprint(*parts: bytes | str | Path | None) -> bytes:
    """SHA-256 over the parts, each with its length; a path stands for the bytes of its file."""
    whole = hashlib.sha256()
    for part in parts:
        inner = hashlib.sha256()
        if isinstance(part, Path):
            with part.open("rb") as file:
                while chunk := file.read(READ):
                    inner.update(chunk)
        elif part is not None:
            inner.update(part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part)
        whole.update(b"\0" if part is None else b"\1" + inner.digest())
    return whole.digest()


@contextmanager
def claimed(
    ctx: Services, caller: Principal, key: str | None, call: str, content: Callable[[], bytes]
) -> Iterator[Claim]:
    """The call's claim on its key; a refusal inside gives it back. `content` is asked for only where there is a key."""
    mac = ctx.home.mac("idempotency", call.encode() + b"\0" + content()) if key is not None else ""
    claim = ctx.idempotency.claim(caller.key_id, key, mac)
    try:
        yield claim
    except BaseException:
        claim.drop()
        raise
