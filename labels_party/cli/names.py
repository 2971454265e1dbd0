"""Ids that were given to a command of another kind: what they name, and which command is meant."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from label_dp.errors import NotFound


@contextmanager
def told_apart(party: Any, name: str) -> Iterator[None]:
    """A NotFound of the body says what `name` is, where this party knows it, and what to run instead."""
    try:
        yield
    except NotFound as unknown:
        for what in (_answer, _release, _predictor):
            try:
                said: str = party.database.read("names.look", lambda c, of=what: of(party, c, name))
            except NotFound:
                continue
            raise NotFound(f"{unknown.detail} {said}") from None
        raise


def _answer(party: Any, connection: Any, name: str) -> str:
    from labels_party.work.kind import ANSWERS

    kind = party.work.get(connection, name, ANSWERS).kind
    return (
        f"It is an answer ({kind}), and its signed document says what left, to whom and at which ε: "
        f"labels-party answer {name} --out FILE.json  writes and shows it."
    )


def _release(party: Any, connection: Any, name: str) -> str:
    from labels_party.work.kind import RELEASES

    party.work.get(connection, name, RELEASES)
    return (
        f"It is a release:  labels-party message {name} --out FILE.parquet  writes its message,  "
        f"labels-party statement {name} --out FILE.html  its statement."
    )


def _predictor(party: Any, connection: Any, name: str) -> str:
    party.companions.predictors.get(connection, name)
    return (
        f"It is a predictor:  labels-party predictor show {name}  says what it answers, and  labels-party answers "
        "--kind prediction  lists the answers that were given."
    )
