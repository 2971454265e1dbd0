"""Changes of a batch whose objects are written before the one transaction that names them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from sqlalchemy.engine import Connection

from label_dp.errors import LabelDPError, Unavailable
from label_dp.store.database import Database
from label_dp.store.idempotency import IdempotentCall, Reply
from labels_party.labels.batches import StaleBatch
from labels_party.labels.vault import LabelVault

T = TypeVar("T")


def until_current(attempt: Callable[[], T], tries: int, otherwise: str) -> T:
    """What `attempt` returns, which is repeated where an upload came first or merged a run away. Raises Unavailable
    (`otherwise`) after so many tries."""
    for _ in range(tries):
        with contextlib.suppress(StaleBatch, FileNotFoundError):
            return attempt()
    raise Unavailable(otherwise)


def certainly_failed(error: BaseException) -> bool:
    """Whether a transaction that ended so did not commit; else what it may name must stay."""
    return isinstance(error, LabelDPError) and not isinstance(error, Unavailable)


def commit(
    database: Database,
    vault: LabelVault,
    name: str,
    call: IdempotentCall,
    effect: Callable[[Connection], tuple[Reply, list[str]]],
    written: Sequence[str],
    held: Sequence[str] = (),
) -> Reply:
    """Run `effect` and remember its reply in transaction `name`; it also returns the keys that nothing names then.

    It names the objects `written` for it, and others `held`, which another attempt may still name. What was written
    goes where the transaction failed; both go where the same call had come first.
    """
    unused: list[str] = []

    def store(connection: Connection) -> Reply:
        unused[:] = *written, *held

        def once() -> Reply:
            reply, unused[:] = effect(connection)
            return reply

        return call.once(connection, once)

    try:
        reply = database.write(name, store)
    except LabelDPError as error:
        if certainly_failed(error):
            delete(vault, written)
        raise
    delete(vault, unused)
    return reply


def delete(vault: LabelVault, keys: Iterable[str]) -> None:
    """Remove objects that nothing names; what cannot be removed now is swept."""
    for key in keys:
        with contextlib.suppress(OSError, Unavailable):
            vault.delete(key)
