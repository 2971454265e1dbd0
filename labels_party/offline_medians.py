"""Medians of files, for the command line: the same services that the API calls, in one go."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labels_party.answers.answers import WORKING
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
    found = services.database.read("median.standing", lambda c: services.answers.of_batch(c, batch_id))
    for answer in found:
        same = answer.kind == MEDIAN and answer.parameters == {"method": wish.method}
        if same and answer.state in WORKING and answer.split.total == wish.epsilon:
            return answer.id
    return None
