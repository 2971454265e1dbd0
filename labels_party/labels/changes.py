"""Changes of a batch whose objects are written before the transaction that names them."""

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
    """Call `attempt` until no concurrent upload or merge interferes. Raises Unavailable(`otherwise`) after `tries`
    tries."""
    for _ in range(tries):
        with contextlib.suppress(StaleBatch, FileNotFoundError):
            return attempt()
    raise Unavailable(otherwise)


def certainly_failed(error: BaseException) -> bool:
    """Return whether a transaction that raised `error` surely did not commit; otherwise its objects must stay."""
    return isinstance(error, LabelDPError) and not isinstance(error, Unavailable)


def commit(
    database: Database,
    vault: LabelVault,
    name: str,
    call: IdempotentCall,
    effect: Callable[[Connection], tuple[Reply, list[str]]],
    written: Sequence[str],
    others: Sequence[str] = (),
) -> Reply:
    """Run `effect` and store its reply in transaction `name`.

    `effect` also returns keys without a name afterwards. It names the objects `written` for it, and `others`, which
    another attempt may name. `written` is deleted if the transaction fails; both are deleted if the same call came
    first.
    """
    unused: list[str] = []

    def store(connection: Connection) -> Reply:
        unused[:] = *written, *others

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
    """Remove unnamed objects; those that cannot be removed now are left to the sweep."""
    for key in keys:
        with contextlib.suppress(OSError, Unavailable):
            vault.delete(key)
