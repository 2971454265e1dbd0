"""Engines: draw privatized files from sealed labels, in this process or (`labels_party.spark`) on a cluster.

An engine runs only for a charged release under a lease. It writes into the attempt's folder only (invariant
charge-first): a prior, a count or an output becomes visible when the attempt is published, or never.
"""

from __future__ import annotations

import errno
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from label_dp.ahead import ahead
from label_dp.channels.base import Channel
from label_dp.documents.manifest import PRIOR_FILE
from label_dp.documents.rows import write_message, write_prior
from label_dp.domain import Domain
from label_dp.errors import EpsilonNotProved, Unavailable
from label_dp.losses import get_loss
from label_dp.store.folders import reserve
from labels_party.ledger.populations import Population
from labels_party.mechanisms.prior import estimate_prior
from labels_party.mechanisms.sampling import sample
from labels_party.message.clipping import (
    ClippedLabels,
    Indexed,
    buy,
    candidates,
    clip_cells,
    clip_loss,
    clip_prior,
)
from labels_party.message.parts import Group, Part, bounds, cut, pieces
from labels_party.message.plan import ESTIMATED, ReleasePlan, resolve, uniform
from labels_party.work.kind import ProgressHook

if TYPE_CHECKING:
    import pyarrow as pa

Chunk = tuple["pa.Array", npt.NDArray[Any]]
Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class DrawJob:
    """Input of an attempt. `given_prior` is public or already private. `groups` yields groups of rows in the order of
    their ids, between which files are cut; None is one group."""

    population: Population
    plan: ReleasePlan
    labels: Indexed
    n: int
    id_bytes: int
    given_prior: npt.NDArray[np.float64] | None
    folder: Path
    rows_per_file: int
    progress: ProgressHook
    groups: Callable[[], Iterable[Group]] | None = None

    @property
    def files(self) -> list[tuple[str, Part]]:
        """Return names and parts of the message's files, from public facts."""
        groups: Iterable[Group] = [(self.n, self.id_bytes)]
        limits = bounds(self.n, self.id_bytes, self.rows_per_file)
        if self.n > limits[0] or Part(0, 0, self.n, self.id_bytes).largest > limits[1]:
            groups = groups if self.groups is None else self.groups()
        parts = list(cut(pieces(groups, *limits), *limits))
        return [(file_name(number, len(parts)), part) for number, part in enumerate(parts)]


@dataclass(frozen=True)
class MessageFile:
    """File of an attempt. `sha256`: its expected digest if another process wrote it."""

    role: str
    name: str
    rows: int
    sha256: str | None = None


@dataclass(frozen=True)
class MessageDraw:
    """Drawn message: its channel, files and facts."""

    channel: Channel
    prior: npt.NDArray[np.float64] | None
    expected_loss: float | None
    files: tuple[MessageFile, ...]
    mechanism: str
    why: str
    domain: Domain  # the population's, or the part of it that was bought


class Engine(ABC):
    """Passes over the sealed labels: histograms for a clipping bound and for the prior (only if ε_clip, ε_prior paid
    for them), then the draw. This class asks for the noise of bounds and prior; a subclass counts labels and draws
    outputs."""

    def check(self, plan: ReleasePlan, domain: Domain) -> None:  # noqa: B027 - most engines refuse nothing
        """Refuse, before it is charged, what the engine cannot do. Raises InvalidInput."""

    @abstractmethod
    def reserve(self, job: DrawJob) -> None:
        """Reserve space for the largest possible files. Raises OSError."""

    @abstractmethod
    def histogram(self, job: DrawJob, starts: npt.NDArray[np.int64], what: str, share: float) -> Counts:
        """Return label counts by position, int64[k], only if an ε of the job's plan pays for them. Callers use only the
        sums of cells that begin at `starts`: a cell's sum may be at its first position. Raises as `draw`."""

    @abstractmethod
    def write(self, job: DrawJob, channel: Channel) -> list[MessageFile]:
        """Draw every label and write the message's files durably, in the order of ids. Raises as `draw`."""

    def draw(self, job: DrawJob) -> MessageDraw:
        """Write the attempt's files durably. Raises Unavailable (disk or randomness failed), EpsilonNotProved (the draw
        would cost more than its part of the charge)."""
        try:
            return self._draw(job)
        except OSError as error:
            what = "no space is left" if error.errno in (errno.ENOSPC, errno.EDQUOT) else str(error.strerror)
            raise Unavailable(
                f"The message cannot be written ({what}). The release stays charged and will not be charged again."
            ) from None

    def _draw(self, job: DrawJob) -> MessageDraw:
        # space first: whether the disk fills up must not depend on what was drawn
        self.reserve(job)
        reserve(job.folder / PRIOR_FILE, largest_prior(job.population.domain.k))
        job = self._bought(job)
        plan, domain = job.plan, job.population.domain
        prior = self._prior(job)
        resolved = resolve(plan, domain, prior, job.n)
        channel = resolved.channel
        # proved again just before labels are drawn, from the weights; one bit: from those of the first and last label
        if not channel.satisfies(plan.split.randomize):
            raise EpsilonNotProved("The randomizer does not prove the ε that is charged, so no label was drawn.")
        files = self.write(job, channel)
        expected = None
        if prior is not None:
            rows = write_prior(job.folder / PRIOR_FILE, domain.values, prior)
            files.append(MessageFile("prior", PRIOR_FILE, rows))
            expected = float(channel.expected_loss(prior, get_loss(plan.loss)))
        else:
            (job.folder / PRIOR_FILE).unlink()
        return MessageDraw(channel, prior, expected, tuple(files), resolved.mechanism, resolved.why, domain)

    def _bought(self, job: DrawJob) -> DrawJob:
        """Draw the bounds that ε_clip pays for; return the job on the domain between them, or `job` without ε_clip."""
        plan, domain = job.plan, job.population.domain
        if not plan.clip_quantiles:
            return job
        grid = candidates(domain)
        starts = np.union1d(np.minimum(np.concatenate([grid, grid + 1]), domain.k - 1), [0])
        counts = self.histogram(job, starts, "choosing the range", 0.1)
        ends = buy(counts, domain, plan.clip_quantiles, plan.split.clip)
        part = domain.part(*ends)
        return replace(
            job,
            population=replace(job.population, domain=part),
            plan=replace(plan, loss=clip_loss(plan.loss, ends), cells=clip_cells(plan.cells, part)),
            labels=ClippedLabels(job.labels, ends),
            given_prior=None if job.given_prior is None else clip_prior(job.given_prior, ends),
        )

    def _prior(self, job: DrawJob) -> npt.NDArray[np.float64] | None:
        plan, k = job.plan, job.population.domain.k
        if job.given_prior is not None:
            return job.given_prior
        if plan.prior_source == ESTIMATED:
            assert plan.cells is not None
            counts = self.histogram(job, plan.cells[:-1], "estimating the prior", 0.4)
            method: Any = plan.prior_method
            return estimate_prior(counts, plan.split.prior, plan.cells, method)
        return uniform(k) if plan.prior_source == "uniform" else None


class LocalEngine(Engine):
    """Engine that draws in this process."""

    def reserve(self, job: DrawJob) -> None:
        for name, part in job.files:
            reserve(job.folder / name, part.largest)

    def histogram(self, job: DrawJob, _starts: npt.NDArray[np.int64], what: str, share: float) -> Counts:
        k, count = job.population.domain.k, 0
        counts = np.zeros(k, np.int64)
        for index in job.labels.positions():
            counts += np.bincount(index, minlength=k)
            count += len(index)
            job.progress(what, share * count / job.n)
        return counts

    def write(self, job: DrawJob, channel: Channel) -> list[MessageFile]:
        feed = _Feed(ahead(self._sampled(job, channel)))
        return [
            MessageFile("message", name, write_message(job.folder / name, feed.take(part.rows), channel))
            for name, part in job.files
        ]

    @staticmethod
    def _sampled(job: DrawJob, channel: Channel) -> Iterator[Chunk]:
        count = 0
        for ids, index in job.labels.chunks():
            yield ids, sample(channel, index)
            count += len(index)
            job.progress("drawing", 0.4 + 0.6 * count / job.n)


def file_name(number: int, count: int) -> str:
    """Return the name of file `number` of `count`."""
    return "message.parquet" if count == 1 else f"message-{number:05d}.parquet"


class _Feed:
    """Reader of a given number of rows at a time; the rest of a chunk stays for the next file."""

    def __init__(self, chunks: Iterator[Chunk]) -> None:
        self.chunks = chunks
        self.rest: Chunk | None = None

    def take(self, rows: int) -> Iterator[Chunk]:
        while rows > 0:
            ids, bins = self.rest or next(self.chunks)
            self.rest = None
            if len(ids) > rows:
                self.rest = ids.slice(rows), bins[rows:]
                ids, bins = ids.slice(0, rows), bins[:rows]
            rows -= len(ids)
            yield ids, bins


def largest_prior(k: int) -> int:
    """Return space for the prior's file: two 64-bit floats per label, uncompressed, and a margin."""
    return 17 * k + (1 << 16)
