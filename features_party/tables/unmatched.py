"""Ids that met nothing: how many are too many, and how both sides seem to write the same ones.

A sample by a keyed hash of what is left of an id without blanks, quotes, case and leading zeros has both spellings of
an id or neither, in bounded memory, whatever the order in which ids come.
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
WARN = 0.25  # more than the usual fifth that is held out
MANY = 0.01  # share of ids that meet if they are spelt otherwise: it is sentence
QUOTES = "\"'`"


def _blanks(ids: pa.Array) -> pa.Array:
    import pyarrow.compute as pc

    return pc.utf8_trim_whitespace(ids)


def _quotes(ids: pa.Array) -> pa.Array:
    import pyarrow.compute as pc

    return pc.utf8_trim(ids, characters=QUOTES)


def _case(ids: pa.Array) -> pa.Array:
    import pyarrow.compute as pc

    return pc.utf8_lower(ids)


def _zeros(ids: pa.Array) -> pa.Array:
    import pyarrow.compute as pc

    return pc.utf8_ltrim(ids, characters="0")


SPELLINGS: dict[str, Callable[[Any], Any]] = {
    "without blanks around them": _blanks,
    "without quotes around them": _quotes,
    "whatever their case": _case,
    "without leading zeros": _zeros,
}
ALL = "without blanks, quotes, case and leading zeros"


class Counts(BaseModel):
    """All about ids, which are public; each row of an id in several messages is kept."""

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
    """Shares of the ids of messages without features: `warn` above the one, `refuse` above the other."""

    warn: float = WARN
    refuse: float = 1.0


WATCHED, SILENT = Limits(), Limits(1.0)


@dataclass
class Unmatched:
    """Samples of ids without a partner, of messages and of features."""

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
        """Ids string or large_string[·], each once in all."""
        self._messages = self._with(self._messages, ids)

    def add_features(self, ids: pa.Array) -> None:
        """As `add_messages`."""
        self._features = self._with(self._features, ids)

    def reason(self) -> tuple[str, float]:
        """The spelling by which most of the ids would meet, and the share of those of messages that would then; "" and
        0 where there is none."""
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
        """The SAMPLE least draws with their normal forms and ids, rising."""
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
    """The counts with a warning where more ids met nothing than `limits` let pass in silence, or where another spelling
    (`Unmatched.reason`) would let many of them meet. Raises InvalidTable where they are refused."""
    examples = counts.feature_rows - counts.features_without_message
    lost, ids = counts.message_ids_without_features, counts.message_ids_without_features + examples
    share = lost / max(ids, 1)
    if limits == SILENT or share <= min(limits.warn, limits.refuse, MANY):
        return counts
    spelling, some = reason()
    if share <= min(limits.warn, limits.refuse) and share * some <= MANY:
        return counts
    sentence = f"{lost:,} of {ids:,} ids of the messages ({share:.0%}) have no features. "
    sentence += (
        f"About {round(some * lost):,} of them would meet ids of features {spelling}: write ids alike on both sides."
        if some
        else "Check the id column, and how both sides write their ids."
    )
    if share > limits.refuse:
        raise InvalidTable(f"{sentence} At most {limits.refuse:.0%} may have none (refuse_unmatched).")
    return counts.model_copy(update={"unmatched_warning": sentence})
