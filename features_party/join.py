"""Joining messages with features by example id, and counting what does not meet."""

from __future__ import annotations

import os
import secrets
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from features_party.correction import Correction, correct
from features_party.feature_tables import FeatureTable
from features_party.intake.accepted import AcceptedMessage
from shared.errors import InvalidFile, InvalidTable

if TYPE_CHECKING:
    import pyarrow as pa

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Counts:
    """All about ids, which are public. `repeated` ids occur in more than one message: each row is kept."""

    messages: int
    message_rows: int
    feature_rows: int
    matched: int
    without_features: int
    without_message: int
    repeated: int

    def as_json(self) -> dict[str, int]:
        return {
            "messages": self.messages,
            "message_rows": self.message_rows,
            "feature_rows": self.feature_rows,
            "matched": self.matched,
            "message_ids_without_features": self.without_features,
            "features_without_message": self.without_message,
            "ids_in_several_messages": self.repeated,
        }


@dataclass(frozen=True)
class Joined:
    """N matched rows, by message and then by id: `position` int64[N] into the feature table, labels float64[N].

    `unmatched` are two string arrays: message ids without features, feature ids without a message.
    """

    table: FeatureTable
    messages: tuple[AcceptedMessage, ...]
    corrections: tuple[Correction, ...]
    position: IntArray
    message: npt.NDArray[np.int32]
    raw: FloatArray
    corrected: FloatArray
    noise_variance: FloatArray
    counts: Counts
    unmatched: tuple[pa.Array, pa.Array]

    def features(self) -> pa.Table:
        """The N feature rows (without the id column)."""
        import pyarrow as pa

        return self.table.features.take(pa.array(self.position))

    def as_table(self) -> pa.Table:
        """Id and features with raw_label, corrected_label, noise_variance (of the corrected label) and release."""
        import pyarrow as pa

        features = self.features()
        extra: dict[str, Any] = {
            "raw_label": self.raw,
            "corrected_label": self.corrected,
            "noise_variance": self.noise_variance,
            "release": pa.DictionaryArray.from_arrays(pa.array(self.message), pa.array(release_names(self.messages))),
        }
        taken = [name for name in extra if name in features.column_names]
        if taken:
            raise InvalidTable(f"The feature table has a column '{taken[0]}', which the join would add; rename it.")
        ids = self.table.ids.take(pa.array(self.position))
        columns = [ids, *features.columns, *extra.values()]
        return pa.table(columns, names=[self.table.id_column, *features.column_names, *extra])


def release_names(messages: Sequence[AcceptedMessage]) -> list[str]:
    """Their release ids; where labels parties chose the same one, with the manifest's digest behind it."""
    often = Counter(m.release for m in messages)
    return [m.release if often[m.release] == 1 else f"{m.release}-{m.digest}" for m in messages]


def join(messages: list[AcceptedMessage], table: FeatureTable, correction: str = "auto") -> Joined:
    """Join and correct, each message by its own channel. Raises InvalidTable where no id at all meets."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not messages:
        raise InvalidTable("A join needs at least one message.")
    corrections, parts, missing = [], [], []
    used = np.zeros(table.rows, dtype=np.int32)
    rows = 0
    for number, message in enumerate(messages):
        channel, data = message.manifest.read_channel(), message.rows()
        every = data["bin"].to_numpy()
        shares = np.bincount(every, minlength=channel.m) / max(len(every), 1)
        how = correct(channel, correction, message.prior(), shares)
        corrections.append(how)
        rows += data.num_rows
        ids = data["example_id"].combine_chunks()
        found = pc.index_in(ids, value_set=table.ids.cast(ids.type))
        here = np.asarray(pc.is_valid(found).to_numpy(zero_copy_only=False), dtype=bool)
        position = np.asarray(found.drop_null().to_numpy(), dtype=np.int64)
        bins = every[here]
        used[position] += 1
        parts.append((position, np.full(len(position), number, np.int32), how.raw[bins], how.corrected[bins]))
        missing.append(ids.filter(pa.array(~here)))
    position, number_of, raw, corrected = (np.concatenate(column) for column in zip(*parts, strict=True))
    lonely = pc.unique(pa.concat_arrays([part.cast(pa.large_string()) for part in missing]))
    counts = Counts(
        messages=len(messages),
        message_rows=rows,
        feature_rows=table.rows,
        matched=len(position),
        without_features=len(lonely),
        without_message=int(np.count_nonzero(used == 0)),
        repeated=int(np.count_nonzero(used > 1)),
    )
    if not len(position):
        raise InvalidTable(
            f"None of the {rows} message rows has an id of the {table.rows} feature rows. "
            "Check the id column and how both sides write their ids."
        )
    noise = np.array([c.noise_variance for c in corrections])[number_of]
    unmatched = (lonely, table.ids.filter(pa.array(used == 0)))
    return Joined(
        table, tuple(messages), tuple(corrections), position, number_of, raw, corrected, noise, counts, unmatched
    )


def write_table(table: pa.Table, path: Path) -> None:
    """Write Parquet, or CSV where the name ends so, to a temporary name and rename. Raises InvalidFile."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyarrow import csv

    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    try:
        with temporary.open("wb") as file:
            if path.suffix.lower() == ".csv":
                plain = [c.dictionary_decode() if pa.types.is_dictionary(c.type) else c for c in _chunked(table)]
                csv.write_csv(pa.table(plain, names=table.column_names), file)
            else:
                pq.write_table(table, file, compression="zstd")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise InvalidFile(f"'{path}' cannot be written ({error.strerror or 'unknown reason'}).") from None
    except pa.ArrowException:
        raise InvalidFile(f"'{path}' cannot hold these columns; write to a .parquet file instead.") from None
    finally:
        temporary.unlink(missing_ok=True)


def _chunked(table: pa.Table) -> list[Any]:
    return [column.combine_chunks() if column.num_chunks else column for column in table.columns]


def list_unmatched(joined: Joined, path: Path) -> None:
    """Write the ids that did not meet: columns example_id and missing_in (features or messages)."""
    import pyarrow as pa

    lonely, unused = joined.unmatched
    ids = pa.concat_arrays([lonely, unused.cast(pa.large_string())])
    where = pa.array(["features"] * len(lonely) + ["messages"] * len(unused), pa.string())
    write_table(pa.table({"example_id": ids, "missing_in": where}), path)
