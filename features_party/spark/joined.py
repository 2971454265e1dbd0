"""Join of messages and features on a cluster, in one action. Messages are read from our own folder, verified and
checked here before Spark reads a byte of them. The list of files that the action returns is authoritative."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from features_party.receive.accepted import AcceptedMessage
from features_party.spark.executor.blocks import BLOCK, FEATURES, HASH, MESSAGES, Blocks
from features_party.spark.executor.meeting import BIN, MESSAGE, Meeting
from features_party.spark.features import SparkFeatures
from features_party.tables.join import correct_message, label_columns, refuse_nothing_matched, split_key
from features_party.tables.label_columns import LabelColumns
from features_party.tables.unmatched import WATCHED, Counts, Limits, check_unmatched
from features_party.training.correction import Correction
from label_dp.errors import Unavailable
from label_dp.progress import Progress
from label_dp.spark.cluster import PROBLEM, Cluster, mapped

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

CELLS = 1 << 23  # of one part: the values of its features
FEWEST_ROWS, MOST_ROWS = 1 << 12, 1 << 18  # of features in a part, about
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
    def seed(self) -> int:
        """Seed of 31 bits from the key of all splits."""
        return int.from_bytes(split_key(self.messages)[:4], "big") >> 1

    @property
    def rows(self) -> int:
        return sum(message.manifest.n for message in self.messages)


@dataclass(frozen=True)
class JoinParts:
    """The files of a join, in the order of their numbers, and how often which outputs came together (of a training):
    `sets` int64[u, w] of `LabelColumns.index`, -1 where an example has fewer; `often` int64[u]."""

    paths: tuple[Path, ...]
    counts: Counts
    examples: int
    sets: npt.NDArray[np.int64]
    often: npt.NDArray[np.int64]


def meet(
    cluster: Cluster,
    features: SparkFeatures,
    corrected: Corrected,
    folder: Path,
    *,
    bare: bool = False,
    without: tuple[str, ...] = (),
    limits: Limits = WATCHED,
) -> JoinParts:
    """Write the join to `folder`, which every worker sees; see `Meeting` for its rows. Raises InvalidFile (ids that
    break a rule), InvalidTable (no match), Unavailable."""
    count = _parts(cluster, features, corrected)
    meeting = cluster.hook(Meeting(features.id_column, corrected.labels, str(folder), bare))

    def job(spark: SparkSession) -> DataFrame:
        hashed = _hash(features.spelt, corrected.seed).alias(HASH)
        both = [
            mapped(features.frame(spark, without, hashed), Blocks(FEATURES, features.id_column, count), BLOCK),
            mapped(_messages(spark, corrected), Blocks(MESSAGES, "example_id", count), BLOCK),
        ]
        parts = both[0].unionAll(both[1]).repartitionById(count, "part")
        return mapped(parts, meeting, Meeting.columns | PROBLEM)

    records = cluster.collect(job)
    whole = {
        name: sum(int(record[name]) for record in records) for name, kind in Meeting.columns.items() if kind == "long"
    }
    for name in ("refused", "repeated"):
        if whole[name]:
            raise features.refuse(cluster, repeated=name == "repeated")
    if whole["feature_rows"] != features.rows or whole["message_rows"] != corrected.rows:
        raise Unavailable("The features changed while they were joined; try again.")
    if not whole["matched"]:
        refuse_nothing_matched(corrected.rows, features.rows)
    counts = Counts(
        messages=len(corrected.messages),
        message_rows=corrected.rows,
        feature_rows=features.rows,
        matched=whole["matched"],
        message_ids_without_features=whole["alone"],
        features_without_message=features.rows - whole["examples"],
        ids_in_several_messages=whole["several"],
    )
    counts = check_unmatched(counts, limits)
    file_records = [record for record in records if record["name"]]
    paths = []
    for number, record in enumerate(sorted(file_records, key=lambda one: int(one["part"]))):
        paths.append((folder / record["name"]).rename(folder / f"part-{number:05d}.parquet"))
    _drop_others(folder, paths)
    return JoinParts(tuple(paths), counts, whole["examples"], *_outputs([record["outputs"] for record in file_records]))


def _parts(cluster: Cluster, features: SparkFeatures, corrected: Corrected) -> int:
    """Return the number of parts, by which a part fits into a task's memory whatever the number of columns."""
    rows = min(max(CELLS // len(features.columns), FEWEST_ROWS), MOST_ROWS)
    count = -(-max(features.rows, corrected.rows) // rows)
    return min(max(count, min(cluster.parallelism, features.rows)), MOST_PARTS)


def _messages(spark: SparkSession, corrected: Corrected) -> DataFrame:
    from pyspark.sql.functions import col, lit

    frames = []
    for number, message in enumerate(corrected.messages):
        paths = [f"file://{message.folder.absolute() / entry.name}" for entry in message.manifest.message_files]
        hashed = _hash(col("example_id"), corrected.seed).alias(HASH)
        columns = lit(number).alias(MESSAGE), col("bin").cast("int").alias(BIN), hashed
        frames.append(spark.read.parquet(*paths).select("example_id", *columns))
    return reduce(lambda a, b: a.unionAll(b), frames)


def _hash(ids: Column, key: int) -> Column:
    """Hash ids to non-negative numbers, so that a part is a remainder. The hash of the key is the seed of the id's
    hash."""
    from pyspark.sql.functions import lit, xxhash64

    return xxhash64(lit(key), ids).bitwiseAND(lit((1 << 62) - 1))


def _drop_others(folder: Path, listed_paths: Sequence[Path]) -> None:
    """Remove files of lost attempts, which are in no list."""
    for path in folder.iterdir():
        if path not in listed_paths:
            path.unlink(missing_ok=True)


def _outputs(parts: list[bytes]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    tables: list[Any] = [np.frombuffer(one[:-1], "<i8").reshape(-1, one[-1] + 1) for one in parts if one]
    if not tables:
        return np.zeros((0, 1), np.int64), np.zeros(0, np.int64)
    width = max(table.shape[1] for table in tables) - 1
    sets = np.vstack([np.pad(t[:, :-1], ((0, 0), (0, width - t.shape[1] + 1)), constant_values=-1) for t in tables])
    sets, which = np.unique(sets, axis=0, return_inverse=True)
    often = np.bincount(which.ravel(), np.concatenate([table[:, -1] for table in tables]), minlength=len(sets))
    return sets, often.astype(np.int64)
