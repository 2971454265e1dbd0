"""The engine port: from sealed labels to privatized files, in this process or (`labels_party.spark`) on a cluster.

An engine runs only for a charged release under a lease. It writes into the attempt's folder and shows nothing to
anybody (invariant charge-first): a prior, a count or an output becomes visible with the publication of the attempt, or
never.
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
    """Everything an attempt needs. `given_prior` is public or already private. `groups` are the rows in the order of
    their ids, for where to cut; without it, one group."""

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
        """Names and rows of the files of the message, from public facts."""
        groups: Iterable[Group] = [(self.n, self.id_bytes)]
        limits = bounds(self.n, self.id_bytes, self.rows_per_file)
        if self.n > limits[0] or Part(0, 0, self.n, self.id_bytes).largest > limits[1]:
            groups = groups if self.groups is None else self.groups()
        parts = list(cut(pieces(groups, *limits), *limits))
        return [(file_name(number, len(parts)), part) for number, part in enumerate(parts)]


@dataclass(frozen=True)
class MessageFile:
    """A file of the attempt. `sha256`: what it must be, where somebody else wrote it."""

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
    """Passes over the sealed labels: the histogram for a clipping bound and the one for the prior (each only if ε_clip,
    ε_prior paid for it), then the draw. An engine is how the passes are made; all noise is drawn here but the draw's.
    """

    def check(self, plan: ReleasePlan, domain: Domain) -> None:  # noqa: B027 - most engines refuse nothing
        """Refuse, before it is charged, what the engine cannot do. Raises InvalidInput."""

    @abstractmethod
    def reserve(self, job: DrawJob) -> None:
        """Set space for the largest possible files aside. Raises OSError."""

    @abstractmethod
    def histogram(self, job: DrawJob, starts: npt.NDArray[np.int64], what: str, share: float) -> Counts:
        """int64[k]: how many labels each position has, only for what an ε of the job's plan pays for. Of the cells that
        begin at `starts` only the sums matter: they may stand at the first position of each. Raises as `draw`."""

    @abstractmethod
    def write(self, job: DrawJob, channel: Channel) -> list[MessageFile]:
        """Draw every label and write the files of the message, durable, in the order of ids. Raises as `draw`."""

    def draw(self, job: DrawJob) -> MessageDraw:
        """Write the attempt's files, durable. Raises Unavailable when the disk or the randomness fails,
        EpsilonNotProved where a draw would cost more than its part of the charge."""
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
        if not channel.satisfies(plan.split.randomize):  # proved again from its weights, just before labels are drawn
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
        """The job on the domain between the bounds that ε_clip buys here; as it is where none are bought."""
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
        k, done = job.population.domain.k, 0
        counts = np.zeros(k, np.int64)
        for index in job.labels.positions():
            counts += np.bincount(index, minlength=k)
            done += len(index)
            job.progress(what, share * done / job.n)
        return counts

    def write(self, job: DrawJob, channel: Channel) -> list[MessageFile]:
        feed = _Feed(ahead(self._sampled(job, channel)))
        return [
            MessageFile("message", name, write_message(job.folder / name, feed.take(part.rows), channel))
            for name, part in job.files
        ]

    @staticmethod
    def _sampled(job: DrawJob, channel: Channel) -> Iterator[Chunk]:
        done = 0
        for ids, index in job.labels.chunks():
            yield ids, sample(channel, index)
            done += len(index)
            job.progress("drawing", 0.4 + 0.6 * done / job.n)


def file_name(number: int, count: int) -> str:
    """Of a file of a message that has `count` of them."""
    return "message.parquet" if count == 1 else f"message-{number:05d}.parquet"


class _Feed:
    """Hands out a given number of rows at a time, keeping what is left of a chunk for the next file."""

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
    """Space for the prior's file: two 64-bit floats a label, stored plain, and a margin."""
    return 17 * k + (1 << 16)
