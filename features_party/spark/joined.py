"""Join of messages and features into files, on a cluster in one action, or here for a training. Messages are read from
our own folder, verified and checked here before Spark reads a byte of them. The list of files that the action returns
is authoritative."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from features_party.receive.accepted import AcceptedMessage
from features_party.spark.executor.blocks import BLOCK, Blocks, Piece, sum_counts
from features_party.spark.executor.meeting import Meeting, Writing
from features_party.spark.features import RULES, SparkFeatures
from features_party.tables.buckets import IdHash
from features_party.tables.join import correct_message, label_columns, refuse_nothing_matched, split_key
from features_party.tables.join_spilled import SpilledJoin
from features_party.tables.label_columns import LabelColumns
from features_party.tables.unmatched import Counts, Limits, check_unmatched
from features_party.training.correction import Correction
from label_dp.errors import Unavailable
from label_dp.progress import Progress
from label_dp.spark.cluster import PROBLEM, Cluster, mapped

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

IDS = 1 << 20  # of one part, of either side, about
MOST_PARTS = 4000


@dataclass(frozen=True)
class Corrected:
    """Accepted messages, each with its own correction."""

    messages: tuple[AcceptedMessage, ...]
    corrections: tuple[Correction, ...]
    labels: LabelColumns

    @classmethod
    def of(cls, messages: Sequence[AcceptedMessage], how: str, progress: Progress) -> Corrected:
        """Read and check all rows once. Raises MalformedManifest, InvalidMechanism as the local join."""
        corrections, count, total = [], 0, sum(message.manifest.n for message in messages)
        for message in messages:
            outputs = message.manifest.read_channel().m
            occurrences = np.zeros(outputs, np.int64)
            for part in message.batches():
                occurrences += np.bincount(part["bin"].to_numpy(), minlength=outputs)
                count += part.num_rows
                progress("reading messages", 0.2 * count / total)
            corrections.append(correct_message(message, how, occurrences))
        return cls(tuple(messages), tuple(corrections), label_columns(messages, corrections))

    @property
    def rows(self) -> int:
        return sum(message.manifest.n for message in self.messages)


@dataclass(frozen=True)
class JoinParts:
    """The files of a join, in the order of their numbers, and how often which outputs came together (of a training):
    `sets` int64[u, w] of `labels.index`, -1 where an example has fewer; `often` int64[u]."""

    messages: tuple[AcceptedMessage, ...]
    corrections: tuple[Correction, ...]
    labels: LabelColumns
    paths: tuple[Path, ...]
    counts: Counts
    examples: int
    sets: npt.NDArray[np.int64]
    often: npt.NDArray[np.int64]

    @property
    def seed(self) -> int:
        """Seed of 31 bits from the key of all splits."""
        return int.from_bytes(split_key(self.messages)[:4], "big") >> 1


def meet(
    cluster: Cluster, features: SparkFeatures, corrected: Corrected, folder: Path, names: list[str], limits: Limits
) -> JoinParts:
    """Write the join to `folder`, which every worker sees; see `Writing` for its rows. `names`: of a training, its
    columns and the id; else none. Raises InvalidFile (ids that break a rule), InvalidTable (no match), Unavailable."""
    own, labels = features.pieces, corrected.labels
    pieces = list(own)
    for at, message in enumerate(corrected.messages):
        files = [(message.folder / entry.name, entry.rows) for entry in message.manifest.message_files]
        pieces += [Piece(str(path.absolute()), range(1 << 31), 0, rows, message=at) for path, rows in files]
    parts = min(max(-(-max(features.rows, corrected.rows) // IDS), cluster.parallelism), MOST_PARTS)
    ids = Blocks(tuple(pieces), features.schema, features.id_column, labels.starts, IdHash.fresh(), parts)
    draws = IdHash.keyed(split_key(corrected.messages)) if names else None
    columns, most = tuple(names or features.schema.names), features.most
    writing = Writing(own, features.schema, columns, features.id_column, labels, str(folder), most, draws)
    steps = [cluster.hook(task) for task in (ids, Meeting(len(own)), writing)]

    def job(spark: SparkSession) -> DataFrame:
        blocks = mapped(spark.range(0, len(pieces), 1, len(pieces)), steps[0], BLOCK)
        matches = mapped(blocks.repartitionById(parts, "part"), steps[1], BLOCK)
        return mapped(matches.repartitionById(len(own), "part"), steps[2], Writing.columns | PROBLEM)

    records = cluster.collect(job)
    whole = sum_counts([record["counts"] for record in records if record["counts"]])
    for name, rule in RULES.items():
        if name in whole:
            raise features.refused(whole[name], whole[f"{name}_at"], rule)
    if whole["feature_rows"] != features.rows or whole["message_rows"] != corrected.rows:
        raise Unavailable("The features changed while they were joined; try again.")
    records = sorted((one for one in records if one["name"]), key=lambda one: (one["piece"], one["row"]))
    if not records:
        refuse_nothing_matched(corrected.rows, features.rows)
    matched, examples, several = (sum(int(one[name]) for one in records) for name in ("matched", "examples", "several"))
    counts = Counts(
        messages=len(corrected.messages),
        message_rows=corrected.rows,
        feature_rows=features.rows,
        matched=matched,
        message_ids_without_features=whole["alone"],
        features_without_message=features.rows - examples,
        ids_in_several_messages=several,
    )
    counts = check_unmatched(counts, limits)
    paths = [(folder / one["name"]).rename(folder / f"part-{number:05d}.parquet") for number, one in enumerate(records)]
    for stray in set(folder.iterdir()) - set(paths):  # of attempts that are in no list
        stray.unlink(missing_ok=True)
    of = (corrected.messages, corrected.corrections, labels)
    return JoinParts(*of, tuple(paths), counts, examples, *_outputs([one["outputs"] for one in records]))


def joined_here(work: SpilledJoin, names: Sequence[str], folder: Path, limits: Limits) -> JoinParts:
    """Write the join for a training to `folder`, a file for each run of rows; see `Writing`. Raises InvalidTable."""
    matches, _, counts = work.meet(limits)
    messages, features = tuple(work.messages), work.features
    labels, draws = label_columns(messages, work.corrections), IdHash.keyed(split_key(messages))
    columns = (features.id_column, *names)
    writing = Writing((), features.schema, columns, features.id_column, labels, str(folder), 1 << 31, draws)
    records = [
        writing.file(number, 0, iter([(0, batch)]), row, index)
        for number, (batch, row, index) in enumerate(work.rows(matches, columns))
        if len(row)
    ]
    paths, examples = tuple(folder / one["name"] for one in records), sum(one["examples"] for one in records)
    of = (messages, tuple(work.corrections), labels)
    return JoinParts(*of, paths, counts, examples, *_outputs([one["outputs"] for one in records]))


def _outputs(parts: list[bytes]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    tables: list[Any] = [np.frombuffer(one[:-1], "<i8").reshape(-1, one[-1] + 1) for one in parts if one]
    if not tables:
        return np.zeros((0, 1), np.int64), np.zeros(0, np.int64)
    width = max(table.shape[1] for table in tables) - 1
    sets = np.vstack([np.pad(t[:, :-1], ((0, 0), (0, width - t.shape[1] + 1)), constant_values=-1) for t in tables])
    sets, which = np.unique(sets, axis=0, return_inverse=True)
    often = np.bincount(which.ravel(), np.concatenate([table[:, -1] for table in tables]), minlength=len(sets))
    return sets, often.astype(np.int64)
