"""Calls under an `Idempotency-Key`: what stands for their bodies, and those whose effect is no transaction of ours."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from features_party.bootstrap import Services
from label_dp.store.apikeys import Principal
from label_dp.store.idempotency import Claim, IdempotentCall, Reply, forget_old

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


def idempotent(
    ctx: Services, caller: Principal, key: str | None, call: str, body: Callable[[], bytes]
) -> IdempotentCall:
    """A call that is remembered under this API key. `body` is asked for only where there is a key."""
    if key is not None:
        forget_old(ctx.database, ctx.idempotency.table)
    return ctx.idempotency.call(caller.key_id, key, call, body)


def claimed(call: IdempotentCall, effect: Callable[[IdempotentCall], Reply]) -> Reply:
    """The earlier answer, or that of `effect`, which runs under a claim; a refusal gives the key back."""
    with Claim(call) as claim:
        return claim.take() or call.keep(effect(call))
