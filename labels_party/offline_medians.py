"""Medians of files, for the command line: the same services that the API calls, in one go."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy.engine import Connection

from labels_party.answers.answers import WORKING, StoredAnswer
from labels_party.answers.medians import MedianWish
from labels_party.bootstrap import Services
from labels_party.offline_answers import ACTOR, LabelsInFile, finish, sealed, write_out
from shared.message.median import MEDIAN
from shared.privacy import ZERO, EpsilonSplit
from shared.service.cli import Progress, writable


@dataclass(frozen=True)
class MedianJob:
    """`of`: the id of a sealed batch, or a file of labels."""

    of: str | LabelsInFile
    wish: MedianWish
    out: Path
    force: bool = False


def median(services: Services, job: MedianJob, progress: Progress) -> dict[str, Any]:
    """Signed median out. Raises typed errors; a refusal charges nothing and leaves no file behind."""
    writable(job.out, job.force)
    asked = EpsilonSplit(ZERO, ZERO, job.wish.epsilon, job.wish.delta_atto)
    progress("reading labels", 0.05)
    batch_id = job.of if isinstance(job.of, str) else sealed(services, job.of, asked, MEDIAN, progress)
    answer_id = _standing(services, batch_id, job.wish)
    if answer_id is None:
        _, answer = services.medians.request(batch_id, job.wish, ACTOR)
        answer_id = str(answer["id"])
    progress("computing", 0.5)
    finish(services, answer_id)
    return write_out(services, answer_id, job.out, force=job.force)


def _standing(services: Services, batch_id: str, wish: MedianWish) -> str | None:
    """What an interrupted run left charged with these very parameters."""

    def look(connection: Connection) -> tuple[int | None, int, list[StoredAnswer]]:
        batch, population = services.batches.get(connection, batch_id)
        return batch.n, population.domain.k, services.answers.of_batch(connection, batch_id)

    n, k, found = services.database.read("median.standing", look)
    waiting = [a for a in found if (a.kind, a.parameters) == (MEDIAN, {"method": wish.method}) and a.state in WORKING]
    # what it costs, not what was asked for: a median may need less δ
    return next((a.id for a in waiting if n is not None and a.split == wish.split(n, k)), None)
