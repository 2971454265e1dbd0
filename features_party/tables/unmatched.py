"""Unmatched ids: how many are too many, and whether both sides spell the same ids differently.

A sample by a keyed hash of the id without blanks, quotes, case and leading zeros has both spellings of an id or
neither, in bounded memory, whatever the order of the ids.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import BaseModel, ConfigDict

from features_party.tables.buckets import IdHash
from label_dp.errors import InvalidTable

if TYPE_CHECKING:
    import pyarrow as pa
SAMPLE = 1 << 12  # ids of each side
WARN = 0.25  # above the usual held-out fifth
MANY = 0.01  # share of ids that match in another spelling, from which on the warning names it
QUOTES = "\"'`"


def _by(function: str, **options: str) -> Callable[[Any], Any]:
    def spell(ids: pa.Array) -> pa.Array:
        import pyarrow.compute as pc

        return getattr(pc, function)(ids, **options)

    return spell


SPELLINGS: dict[str, Callable[[Any], Any]] = {
    "without blanks around them": _by("utf8_trim_whitespace"),
    "without quotes around them": _by("utf8_trim", characters=QUOTES),
    "whatever their case": _by("utf8_lower"),
    "without leading zeros": _by("utf8_ltrim", characters="0"),
}
ALL = "without blanks, quotes, case and leading zeros"


class Counts(BaseModel):
    """Counts of a join, all about public ids; each row of an id in several messages is kept."""

    model_config = ConfigDict(frozen=True)

    messages: int
    message_rows: int
    feature_rows: int
    matched: int
    message_ids_without_features: int
    features_without_message: int
    ids_in_several_messages: int
    unmatched_warning: str | None = None


@dataclass(frozen=True)
class Limits:
    """Shares of the messages' ids without features: a warning above `warn`, a refusal above `refuse`."""

    warn: float = WARN
    refuse: float = 1.0


WATCHED, SILENT = Limits(), Limits(1.0)


@dataclass
class Unmatched:
    """Samples of unmatched ids, of messages and of features."""

    _hash: IdHash = field(default_factory=IdHash.fresh, repr=False)
    _messages: tuple[Any, Any, Any] | None = None
    _features: tuple[Any, Any, Any] | None = None

    @classmethod
    def of(cls, messages: pa.Array, features: pa.Array) -> Unmatched:
        sample = cls()
        sample.add_messages(messages)
        sample.add_features(features)
        return sample

    def add_messages(self, ids: pa.Array) -> None:
        """Add unmatched ids of messages, string or large_string[·], each once in all."""
        self._messages = self._with(self._messages, ids)

    def add_features(self, ids: pa.Array) -> None:
        """Add unmatched ids of features, as `add_messages`."""
        self._features = self._with(self._features, ids)

    def reason(self) -> tuple[str, float]:
        """Return the spelling in which most of the ids would match, and the share of the messages' ids that would; ("",
        0) if none."""
        import pyarrow.compute as pc

        if self._messages is None or self._features is None:
            return "", 0.0
        last = min((side[0][-1] for side in (self._messages, self._features) if len(side[0]) == SAMPLE), default=None)
        (draws, normal, ids), (_, normals, others) = self._messages, self._features
        within = len(draws) if last is None else int(np.searchsorted(draws, last, "right"))
        partner = pc.index_in(normal.slice(0, within), value_set=normals)
        pairs = ids.slice(0, within).filter(partner.is_valid()), others.take(partner.drop_null())
        if not len(pairs[0]):
            return "", 0.0
        alike = {
            name: pc.sum(pc.equal(spelling(pairs[0]), spelling(pairs[1]))).as_py() or 0
            for name, spelling in SPELLINGS.items()
        }
        best = max(alike, key=lambda name: alike[name])
        enough = 2 * alike[best] > len(pairs[0])
        return (best, alike[best] / within) if enough else (ALL, len(pairs[0]) / within)

    def _with(self, side: tuple[Any, Any, Any] | None, ids: pa.Array) -> tuple[Any, Any, Any]:
        """Return the SAMPLE smallest draws with their normal forms and ids, rising."""
        import pyarrow as pa

        ids = ids.cast(pa.large_string())
        normal = ids
        for spelling in SPELLINGS.values():
            normal = spelling(normal)
        draws = self._hash.draws(normal)
        if side is not None:
            draws = np.concatenate([side[0], draws])
            normal, ids = (pa.concat_arrays([old, new]) for old, new in ((side[1], normal), (side[2], ids)))
        order = np.argsort(draws, kind="stable")[:SAMPLE]
        return draws[order], normal.take(pa.array(order)), ids.take(pa.array(order))


def check_unmatched(
    counts: Counts, limits: Limits, reason: Callable[[], tuple[str, float]] = lambda: ("", 0.0)
) -> Counts:
    """Return the counts with a warning if more ids are unmatched than `limits` tolerate, or if many would match in
    another spelling (`Unmatched.reason`). Raises InvalidTable above the refusal limit."""
    examples = counts.feature_rows - counts.features_without_message
    missing, ids = counts.message_ids_without_features, counts.message_ids_without_features + examples
    share = missing / max(ids, 1)
    if limits == SILENT or share <= min(limits.warn, limits.refuse, MANY):
        return counts
    spelling, some = reason()
    if share <= min(limits.warn, limits.refuse) and share * some <= MANY:
        return counts
    sentence = f"{missing:,} of {ids:,} ids of the messages ({share:.0%}) have no features. "
    sentence += (
        f"About {round(some * missing):,} of them would meet ids of features {spelling}: write ids alike on both sides."
        if some
        else "Check the id column, and how both sides write their ids."
    )
    if share > limits.refuse:
        raise InvalidTable(f"{sentence} At most {limits.refuse:.0%} may have none (refuse_unmatched).")
    return counts.model_copy(update={"unmatched_warning": sentence})
