"""Sums of labels by our own columns, asked of a labels party: ids and groups go out, a signed answer comes back.

The columns named in a grouping are sent, and no others; this is no longer feature-oblivious, and says so.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from features_party.bootstrap import Services
from features_party.companions.asking import who_allows
from features_party.companions.codes import codes_of
from features_party.companions.files import AnswerRun, AnswerWait, arrived
from features_party.receive.labels_service import LabelsService
from features_party.tables.feature_tables import read_features
from label_dp.companions.kinds.sum import SUM
from label_dp.companions.kinds.sum import tables as tables
from label_dp.errors import InvalidInput
from label_dp.privacy import Epsilon
from label_dp.progress import Progress
from label_dp.schemas.sums import GroupSums


@dataclass(frozen=True)
class AskSumsJob(AnswerWait):
    """Sums of the labels of a batch by columns of `file`."""

    terms: GroupSums
    file: Path
    id_column: str

    @cached_property
    def by(self) -> list[str]:
        """Groupings: those of the terms, or else of the codes that the file holds. Raises InvalidInput, InvalidFile."""
        codes = None if self.terms.by else codes_of(self.file)
        if not self.terms.by and codes is None:
            raise InvalidInput("Name columns with --by; only a table that features-party codes made needs none.")
        return self.terms.by if codes is None else codes.by

    @property
    def columns(self) -> list[str]:
        """Columns that are sent."""
        return list(dict.fromkeys(name.strip() for text in self.by for name in text.split(",")))


def ask_sums(services: Services, service: LabelsService, job: AskSumsJob, progress: Progress) -> AnswerRun:
    """Send the columns, ask, and go on as `arrived`. Raises NotFound (no such batch, or no allowance), InvalidFile,
    InvalidTable, InvalidInput, Refusal (beyond the allowance), Conflict, Unavailable."""
    if job.labels_key is None:
        services.pinned.required()  # nothing is charged that could not be verified
    epsilon = Epsilon.parse(job.terms.epsilon, positive=True)
    progress("reading", 0.05)
    body, rows = _table(job)
    query = {"epsilon": str(epsilon), "by": job.by, "id_column": job.id_column}
    if job.terms.additional_release:
        query["additional_release"] = "true"
    progress("sending columns", 0.3)
    with who_allows(job.batch, "sums"):
        service.sums_allowance(job.batch)
        order = service.ask_sums(
            job.batch, body, query, lambda n: progress("sending columns", 0.3 + 0.3 * n / len(body))
        )
    return arrived(services, service, AnswerRun(order["answer"], order["state"], rows), job, SUM, epsilon, progress)


def _table(job: AskSumsJob) -> tuple[bytes, int]:
    """Return a Parquet file of the ids and the columns that are named, and its rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = read_features(job.file, job.id_column, text=None)
    missing = [name for name in job.columns if name not in table.features.column_names]
    if missing:
        raise InvalidInput(f"'{job.file}' has no column '{missing[0][:60]}'.")
    columns = {job.id_column: table.ids} | {name: table.features[name] for name in job.columns}
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink, compression="zstd", store_schema=False)
    return sink.getvalue(), table.rows
