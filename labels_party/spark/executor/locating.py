"""Rows that were refused: a pass of its own, made only to name them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from label_dp.errors import InvalidRows, InvalidTable
from label_dp.spark.task import TaskFailed
from labels_party.labels.digests import U64, siphash128
from labels_party.labels.runs import contains
from labels_party.spark.executor.arriving import ArrivalRules

if TYPE_CHECKING:
    import pyarrow as pa

SHOWN = 20
PLACE = {"file": "string", "row": "long", "field": "string", "rule": "string"}


@dataclass(frozen=True, eq=False)
class Locating:
    """Picklable; from batches (id[, label], file, row) to places of refused rows, at most 20 a task. `wanted`: a run of
    digests whose rows break `rule`; none: those that break the rules themselves."""

    rules: ArrivalRules
    digest_key: bytes = field(repr=False)
    wanted: tuple[U64, U64]
    rule: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Raises TaskFailed."""
        import pyarrow as pa

        kinds = {"string": pa.string(), "long": pa.int64()}
        schema = pa.schema([pa.field(name, kinds[kind]) for name, kind in PLACE.items()])
        found: list[dict[str, Any]] = []
        for batch in batches:
            try:
                places = self._places(batch)
            except Exception as error:
                raise TaskFailed(type(error).__name__) from None
            file, row = batch.column(batch.num_columns - 2), batch.column(batch.num_columns - 1)
            for at, name, rule in places[: SHOWN - len(found)]:
                where = {"file": file[at].as_py(), "row": row[at].as_py()} if batch.num_rows else {"file": "", "row": 0}
                found.append(where | {"field": name, "rule": rule})
        yield pa.RecordBatch.from_pylist(found, schema=schema)

    def _places(self, batch: pa.RecordBatch) -> list[tuple[int, str, str]]:
        try:
            ids, _ = self.rules.read(batch)
        except InvalidRows as error:
            return [(p.row, p.field, p.rule) for p in error.problems]
        except InvalidTable as error:
            return [(0, self.rules.label_field or self.rules.id_field, error.detail)]
        if not len(self.wanted[0]):
            return []
        marks = contains(self.wanted, *siphash128(ids, self.digest_key))
        return [(int(at), self.rules.id_field, self.rule) for at in np.flatnonzero(marks)]
