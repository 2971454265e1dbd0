"""Calls under an `Idempotency-Key`: digests of their bodies, and claims for effects outside of our transactions."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from features_party.bootstrap import Services
from label_dp.store.apikeys import Principal
from label_dp.store.idempotency import Claim, IdempotentCall, Reply, forget_old

READ = 1 << 20


def fingerprint(*parts: bytes | str | Path | None) -> bytes:
    """Hash the parts, each with its length; a path counts as the bytes of its file."""
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
    """Describe a call under this API key; `body` is called only if there is a key."""
    if key is not None:
        forget_old(ctx.database, ctx.idempotency.table)
    return ctx.idempotency.call(caller.key_id, key, call, body)


def claimed(call: IdempotentCall, effect: Callable[[IdempotentCall], Reply]) -> Reply:
    """Return the earlier answer, or that of `effect`, which runs under a claim; a refusal gives the key back."""
    with Claim(call) as claim:
        return claim.take() or call.keep(effect(call))
