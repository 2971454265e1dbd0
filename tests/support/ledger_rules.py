"""What a `World` knows of its labels party, and what each call may come to: pure, without a party.

A call is allowed "ok" or the code of the one refusal it must get. `Progress` is what the worker has done of what was
charged, which no call tells: it is read from the party.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from label_dp.privacy import Epsilon
from tests.support.ledger_calls import LIFETIME

OPEN, SEALED, PURGED = "open", "sealed", "purged"
OK, CONFLICT, ALREADY, OVER = "ok", "conflict", "already-released", "budget-exceeded"


@dataclass
class Predictor:
    """`answers` by query, those that were given: their ids, and digests of their envelopes."""

    epsilon: int
    cap: int
    retired: bool = False
    answers: dict[int, tuple[str, str]] = field(default_factory=dict)


@dataclass
class Batch:
    """`charges`: nano-ε of releases and answers, queries of predictors included, whose charge was answered."""

    presence: str
    state: str = OPEN
    features: bool = False
    listed: set[str] = field(default_factory=set)
    labelled: set[str] = field(default_factory=set)
    charges: dict[str, int] = field(default_factory=dict)
    predictors: dict[str, Predictor] = field(default_factory=dict)

    @property
    def spent(self) -> int:
        return sum(self.charges.values())

    @property
    def size(self) -> int:
        return len(self.listed if self.presence == "id-list" else self.labelled)

    @property
    def carries(self) -> bool:
        """Something that makes every further charge one on top."""
        return bool(self.charges) or not all(p.retired for p in self.predictors.values())


@dataclass(frozen=True)
class Progress:
    """Ids of published releases and answers, and of predictors still to be trained."""

    published: frozenset[str] = frozenset()
    training: frozenset[str] = frozenset()


def nano(epsilon: str) -> int:
    return Epsilon.parse(epsilon).nano


def cost(name: str, batch: Batch, arguments: tuple[Any, ...]) -> int:
    """Nano-ε that the call charges if it is done now."""
    if name in ("release", "median", "calibrate"):
        return nano(arguments[1])
    if name == "predict":
        asked = batch.predictors[arguments[1]]
        return 0 if arguments[2] in asked.answers else asked.epsilon
    return 0


def allowed(name: str, batch: Batch, arguments: tuple[Any, ...], progress: Progress) -> str:
    """What the call must come to."""
    return RULES[name](batch, progress, *arguments[1:])


def _affordable(batch: Batch, epsilon: int) -> str:
    return OVER if batch.spent + epsilon > nano(LIFETIME) else OK


def _list(batch: Batch, _: Progress, ids: list[str]) -> str:
    if batch.presence == "id-list" and batch.listed == set(ids):
        return OK
    return CONFLICT if batch.presence != "id-list" or batch.state != OPEN or batch.labelled else OK


def _ingest(batch: Batch, _: Progress, ids: list[str], _label: int, mode: str) -> str:
    if batch.state != OPEN or (batch.presence == "id-list" and not batch.listed):
        return CONFLICT
    if batch.presence == "id-list" and not batch.listed.issuperset(ids):
        return "invalid-rows"
    return "duplicate-id" if mode == "insert" and not batch.labelled.isdisjoint(ids) else OK


def _seal(batch: Batch, _: Progress) -> str:
    return OK if batch.state == OPEN and batch.size else CONFLICT


def _charge(batch: Batch, _: Progress, epsilon: str, additional: bool, *_more: Any) -> str:
    if batch.state != SEALED:
        return CONFLICT
    return ALREADY if batch.carries and not additional else _affordable(batch, nano(epsilon))


def _features(batch: Batch, progress: Progress, *_: Any) -> str:
    return CONFLICT if batch.state == PURGED or not progress.training.isdisjoint(batch.predictors) else OK


def _predictor(batch: Batch, progress: Progress, epsilon: str, _cap: str, additional: bool) -> str:
    """Charges nothing, and must be able to afford a query."""
    found = _charge(batch, progress, epsilon, additional)
    return CONFLICT if found == OK and not batch.features else found


def _predict(batch: Batch, progress: Progress, predictor: str, query: int) -> str:
    asked = batch.predictors[predictor]
    if query in asked.answers:
        return OK
    if asked.retired or predictor in progress.training:
        return CONFLICT
    spent = (len(asked.answers) + 1) * asked.epsilon
    return OVER if spent > asked.cap else _affordable(batch, asked.epsilon)


def _purge(batch: Batch, progress: Progress) -> str:
    """Waits for whatever is charged."""
    done = batch.state == SEALED and progress.published.issuperset(batch.charges)
    return OK if batch.state == PURGED or done else CONFLICT


RULES: dict[str, Callable[..., str]] = {
    "list": _list,
    "ingest": _ingest,
    "seal": _seal,
    "release": _charge,
    "median": _charge,
    "calibrate": _charge,
    "features": _features,
    "predictor": _predictor,
    "predict": _predict,
    "retire": lambda _batch, _progress, _predictor: OK,
    "purge": _purge,
}


def apply(name: str, batch: Batch, arguments: tuple[Any, ...], answer: dict[str, Any]) -> None:
    """What an answered call has done."""
    charged = cost(name, batch, arguments)
    if charged:
        assert answer["id"] not in batch.charges, "two charges have one id"
        batch.charges[answer["id"]] = charged
    if name == "list" and batch.state == OPEN:
        batch.listed = set(arguments[1])
    elif name == "ingest":
        batch.labelled |= set(arguments[1])
    elif name == "seal":
        assert answer["examples"] == batch.size
        batch.state = SEALED
    elif name == "features":
        batch.features = True
    elif name == "predictor":
        batch.predictors[answer["id"]] = Predictor(nano(arguments[1]), nano(arguments[2]))
    elif name == "predict":
        given = answer["id"], answer["sha256"]
        known = batch.predictors[arguments[1]].answers.setdefault(arguments[2], given)
        assert known == given, "the same query has another answer"
    elif name == "retire":
        batch.predictors[arguments[1]].retired = True
    elif name == "purge":
        batch.state = PURGED
        for predictor in batch.predictors.values():
            predictor.retired = True
