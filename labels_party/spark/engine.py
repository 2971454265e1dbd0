"""The message's passes as jobs of Spark. The driver charges, draws the noise of bounds and prior, and
publishes as ever.

What counts of a draw is the list that its one action returned: only these files are moved to their names.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from label_dp.channels.base import Channel
from label_dp.domain import Domain
from label_dp.errors import InvalidInput, Unavailable
from label_dp.spark.cluster import Cluster, prepare_spark
from label_dp.spark.staging import staging, take
from label_dp.store.folders import fsync_folder, reserve
from labels_party.labels.seal import SealedLabels
from labels_party.labels.vault import LabelVault
from labels_party.message.clipping import ClippedLabels, candidates
from labels_party.message.engine import Counts, DrawJob, Engine, MessageFile, file_name
from labels_party.message.parts import bounds, cut
from labels_party.message.plan import ESTIMATED, ReleasePlan
from labels_party.settings import Settings
from labels_party.spark.executor.counting import Counting
from labels_party.spark.executor.drawing import Drawing
from labels_party.spark.executor.slices import Slice, SlicedLabels

MOST_CELLS = 1 << 14  # counts that one task returns
FEWEST_ROWS = 1 << 20  # of a file: smaller ones are not worth a task
BALLAST = "space"
STANDS = "What was charged stays charged and is not charged again."


def engine_of(settings: Settings) -> SparkEngine:
    """The engine 'spark' of a party. Raises InvalidSettings if Spark cannot be started here."""
    prepare_spark()
    return SparkEngine(Cluster("labels-party", settings.spark_master, STANDS, settings.home / "kernels"))


class SparkEngine(Engine):
    """Engine that draws on a Spark cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def check(self, plan: ReleasePlan, domain: Domain) -> None:
        cells = 0 if plan.cells is None or plan.prior_source != ESTIMATED else plan.cells.size - 1
        if plan.clip_quantiles:
            cells = max(cells, 2 * candidates(domain).size)
        if cells > MOST_CELLS:
            raise InvalidInput(
                f"On Spark a histogram has at most {MOST_CELLS:,} cells, and this one would have {cells:,}; take "
                "--prior-epsilon auto, a coarser domain, or the local engine."
            )

    def reserve(self, job: DrawJob) -> None:
        """Refuses a full disk before labels are read; each task sets aside the space of its own file again."""
        path = job.folder / BALLAST
        try:
            reserve(path, sum(part.largest for _, part in job.files))
        finally:
            path.unlink(missing_ok=True)

    def histogram(self, job: DrawJob, starts: npt.NDArray[np.int64], what: str, share: float) -> Counts:
        k = job.population.domain.k
        with staging(job.folder) as folder:
            labels = self._labels(job, folder)
            records = self.cluster.pieces(Counting(labels, starts, k), len(labels.slices))
        counts = np.zeros(k, np.int64)
        for record in records:
            counts[starts] += np.frombuffer(record["counts"], "<i8")
        job.progress(what, share)
        return counts

    def write(self, job: DrawJob, channel: Channel) -> list[MessageFile]:
        with staging(job.folder) as folder:
            labels = self._labels(job, folder)
            count = len(labels.slices)
            records = self.cluster.pieces(Drawing(labels, channel, str(folder)), count)
            ids = [record[end] for record in records for end in ("first", "last")]
            whole = [record["rows"] for record in records] == [part.rows for part in labels.slices]
            if not whole or any(a.encode() > b.encode() for a, b in itertools.pairwise(ids)):
                raise Unavailable("The files of the draw are not the batch's rows in order; it is drawn anew.")
            written = []
            for number, record in enumerate(records):
                name = file_name(number, count)
                take(folder / record["name"], record["bytes"], job.folder / name)
                written.append(MessageFile("message", name, record["rows"], record["sha256"]))
        fsync_folder(job.folder)
        job.progress("drawing", 1.0)
        return written

    # --- parts --------------------------------------------------------------------------------------------

    def _labels(self, job: DrawJob, folder: Path) -> SlicedLabels:
        """The sealed labels in slices of about one size, which the number of rows and the cluster decide. Those of an
        object store are copied into `folder`."""
        indexed, ends = job.labels, None
        if isinstance(job.labels, ClippedLabels):
            indexed, ends = job.labels.labels, job.labels.ends
        assert isinstance(indexed, SealedLabels)
        wanted = max(FEWEST_ROWS, -(-job.n // (2 * self.cluster.parallelism)))
        limits = bounds(job.n, job.id_bytes, min(wanted, job.rows_per_file))
        vault, files = indexed.vault.local(indexed.objects, folder)
        parts = (_sliced(vault, files.path(name), name, limits) for name in indexed.objects)
        return SlicedLabels(tuple(itertools.chain.from_iterable(parts)), ends)


def _sliced(vault: LabelVault, path: Path, name: str, limits: tuple[int, int]) -> Iterator[Slice]:
    """Consecutive row groups of an object; from its foot, which tells nothing of labels."""
    key = vault.batch_key(name)
    for part in cut(vault.groups(name), *limits):
        yield Slice(str(path), name, key, part.first, part.last, part.rows, part.id_bytes)
