"""Join of messages with features by example id, with counts of unmatched ids."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt

from features_party.receive.accepted import AcceptedMessage
from features_party.tables.buckets import IdHash
from features_party.tables.feature_tables import FeatureTable
from features_party.tables.label_columns import LabelColumns
from features_party.tables.output import write_table
from features_party.tables.unmatched import SILENT, Counts, Limits, Unmatched, check_unmatched
from features_party.training.correction import Correction, correct
from features_party.training.draws import Draws
from label_dp.errors import InvalidInput, InvalidTable

if TYPE_CHECKING:
    import pyarrow as pa

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


ADDED = ("raw_label", "corrected_label", "noise_variance", "release")

# members in place of a correction, for more than two classes
NO_CORRECTION = dict.fromkeys(("applied", "noise_variance", "unbiased", "residual_bias", "rho")) | {
    "why": "classes as they were drawn; a class has no corrected value"
}


def refuse_taken(names: Sequence[str]) -> None:
    """Raise InvalidTable if the features have a column that the join adds."""
    clashes = [name for name in ADDED if name in names]
    if clashes:
        raise InvalidTable(f"The feature table has a column '{clashes[0]}', which the join would add; rename it.")


def refuse_nothing_matched(
    message_rows: int, feature_rows: int, reason: Callable[[], tuple[str, float]] = lambda: ("", 0.0)
) -> NoReturn:
    """Raise InvalidTable if no id matched; `reason`: as of `Unmatched`."""
    spelling, some = reason()
    hint = f"About {some:.0%} of them would meet ids of features {spelling}: write ids alike on both sides."
    sentence = f"None of the {message_rows:,} message rows has an id of the {feature_rows:,} feature rows. "
    raise InvalidTable(sentence + (hint if some else "Check the id column and how both sides write their ids."))


def check_correctable(messages: Sequence[AcceptedMessage], correction: str) -> None:
    """Raise InvalidInput for a correction of more than two classes."""
    if correction not in ("auto", "none") and any(m.manifest.public_domain.nominal for m in messages):
        raise InvalidInput(
            f"Labels that are classes with names have no corrected value, so the correction '{correction}' means "
            "nothing for them; leave it out."
        )


@dataclass(frozen=True)
class JoinResult:
    """N matched rows in the order of the feature table, those of one example in the order of the messages.

    `position` int64[N] into the feature table, `message` int32[N] the number of the message, labels float64[N].
    `unmatched` are two string arrays: message ids without features, feature ids without a message.
    """

    table: FeatureTable
    messages: tuple[AcceptedMessage, ...]
    corrections: tuple[Correction, ...]
    position: IntArray
    message: npt.NDArray[np.int32]
    index: IntArray
    labels: LabelColumns
    counts: Counts
    unmatched: tuple[pa.Array, pa.Array]

    @cached_property
    def raw(self) -> FloatArray:
        return self.labels.raw[self.index]

    @cached_property
    def corrected(self) -> FloatArray:
        return self.labels.corrected[self.index]

    @property
    def bins(self) -> IntArray:
        """Output of each row within its own message's channel, int64[N]."""
        return self.index - self.labels.starts[self.message]

    @cached_property
    def noise_variance(self) -> FloatArray:
        return self.labels.noise_variance[self.index]

    @property
    def draws(self) -> Draws:
        """Draws by which a training splits the rows, uint64[N]; equal for rows of one example."""
        return IdHash.keyed(split_key(self.messages)).draws(self.table.ids)[self.position]

    def features(self) -> pa.Table:
        """Return the N feature rows without the id column; the table itself, not a copy, if each row matched one
        label."""
        return self.take(self.table.features)

    def take(self, values: Any) -> Any:
        """Take the N matched rows of a table or array that is parallel to the feature table."""
        import pyarrow as pa

        whole = len(self.position) == self.table.rows and np.array_equal(self.position, np.arange(self.table.rows))
        return values if whole else values.take(pa.array(self.position))

    def labelled(self, table: pa.Table) -> pa.Table:
        """Take the matched rows of `table`, which is parallel to the feature table, and add the columns ADDED."""
        refuse_taken(table.column_names)
        rows = self.take(table)
        for name, column in self.labels.columns(self.message, self.index).items():
            rows = rows.append_column(name, column)
        return rows


def release_names(messages: Sequence[AcceptedMessage]) -> list[str]:
    """Return their release ids, with the manifest's digest if labels parties chose the same id."""
    often = Counter(m.release for m in messages)
    return [m.release if often[m.release] == 1 else f"{m.release}-{m.digest}" for m in messages]


def split_key(messages: Sequence[AcceptedMessage]) -> bytes:
    """Return the key of a training's splits: the ids of its releases, which are random and younger than the example
    ids."""
    return hashlib.sha256("\n".join(sorted(message.release for message in messages)).encode()).digest()


def join(
    messages: list[AcceptedMessage], table: FeatureTable, correction: str = "auto", limits: Limits = SILENT
) -> JoinResult:
    """Join and correct, each message by its own channel. Raises InvalidTable if no id matches, or more ids of messages
    are unmatched than `limits` allow."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not messages:
        raise InvalidTable("A join needs at least one message.")
    corrections, parts, missing = [], [], []
    used = np.zeros(table.rows, dtype=np.int32)
    rows = 0
    for number, message in enumerate(messages):
        channel, data = message.manifest.read_channel(), message.rows()
        bins = data["bin"].to_numpy()
        corrections.append(correct_message(message, correction, np.bincount(bins, minlength=channel.m)))
        rows += data.num_rows
        ids = data["example_id"].combine_chunks()
        index = pc.index_in(ids, value_set=table.ids.cast(ids.type))
        here = np.asarray(pc.is_valid(index).to_numpy(zero_copy_only=False), dtype=bool)
        position = np.asarray(index.drop_null().to_numpy(), dtype=np.int64)
        used[position] += 1
        parts.append((position, np.full(len(position), number, np.int32), bins[here].astype(np.int64)))
        missing.append(ids.filter(pa.array(~here)))
    position, number_of, bin_of = (np.concatenate(column) for column in zip(*parts, strict=True))
    lonely = pc.unique(pa.concat_arrays([part.cast(pa.large_string()) for part in missing]))
    if table.aside is not None:
        lonely = lonely.filter(pc.invert(pc.is_in(lonely, value_set=table.aside.cast(lonely.type))))
    counts = Counts(
        messages=len(messages),
        message_rows=rows,
        feature_rows=table.rows,
        matched=len(position),
        message_ids_without_features=len(lonely),
        features_without_message=int(np.count_nonzero(used == 0)),
        ids_in_several_messages=int(np.count_nonzero(used > 1)),
    )
    unmatched = (lonely, table.ids.filter(pa.array(used == 0)))
    if not len(position):
        refuse_nothing_matched(rows, table.rows, lambda: Unmatched.of(*unmatched).reason())
    counts = check_unmatched(counts, limits, lambda: Unmatched.of(*unmatched).reason())
    order = np.argsort(position, kind="stable")
    position, number_of, bin_of = position[order], number_of[order], bin_of[order]
    labels = label_columns(messages, corrections)
    return JoinResult(
        table=table,
        messages=tuple(messages),
        corrections=tuple(corrections),
        position=position,
        message=number_of,
        index=labels.index(number_of, bin_of),
        labels=labels,
        counts=counts,
        unmatched=unmatched,
    )


def join_summary(
    features: object,
    out: object,
    counts: Counts,
    messages: Sequence[AcceptedMessage],
    corrections: Sequence[Correction],
) -> dict[str, object]:
    """Describe a join as its command prints it; the version of a lake table stands in its address."""
    return {
        "features": str(features),
        "table": str(out),
        "counts": counts.model_dump(),
        "messages": [
            {"release": m.release, "already_accepted": not m.fresh}
            | (NO_CORRECTION if m.manifest.public_domain.nominal else c.as_json())
            for m, c in zip(messages, corrections, strict=True)
        ],
    }


def label_columns(messages: Sequence[AcceptedMessage], corrections: Sequence[Correction]) -> LabelColumns:
    """Return the columns of corrected labels for these messages."""
    domains = [message.manifest.public_domain for message in messages]
    return LabelColumns.of(release_names(messages), domains, corrections)


def correct_message(message: AcceptedMessage, correction: str, occurrences: IntArray) -> Correction:
    """Return the correction of one message by its own channel; `occurrences` int64[m] of each output in it."""
    rows = int(occurrences.sum())
    return correct(message.manifest.read_channel(), correction, message.prior(), occurrences / max(rows, 1), rows)


def list_unmatched(result: JoinResult, path: Path, *, force: bool = False) -> None:
    """Write the unmatched ids: columns example_id and missing_in (features or messages)."""
    import pyarrow as pa

    lonely, unused = result.unmatched
    ids = pa.concat_arrays([lonely, unused.cast(pa.large_string())])
    where = pa.array(["features"] * len(lonely) + ["messages"] * len(unused), pa.string())
    write_table(pa.table({"example_id": ids, "missing_in": where}), path, force=force)
