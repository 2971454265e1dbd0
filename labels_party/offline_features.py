"""Rectangles and linear models of files, for the command line: the same services that the API calls, in one go."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labels_party.answers.answers import WORKING
from labels_party.answers.own_features import Wish
from labels_party.bootstrap import Services
from labels_party.offline_answers import ACTOR, LabelsInFile, finish, sealed, write_out
from shared.privacy import ZERO, EpsilonSplit
from shared.service.cli import Progress, writable


@dataclass(frozen=True)
class FeatureJob:
    """`of`: the id of a sealed batch, or a file of labels. `features` None: the table that is stored already."""

    of: str | LabelsInFile
    features: Path | None
    id_column: str
    wish: Wish
    out: Path
    force: bool = False


def planned(services: Services, batch_id: str, wish: Wish) -> dict[str, Any]:
    """What an answer would cost and do; nothing is charged."""
    found = services.feature_answers.plan(batch_id, wish)
    told = {"kind": wish.kind, "batch": batch_id, "epsilon": found.split.as_json()}
    return told | {"parameters": found.parameters, "facts": found.facts}


def answered(services: Services, job: FeatureJob, progress: Progress) -> dict[str, Any]:
    """Signed answer out. Raises typed errors; a refusal charges nothing and leaves no file behind."""
    writable(job.out, job.force)
    store, wish = services.predictors.features, job.wish
    progress("reading features", 0.05)
    table = None
    if job.features is not None:
        # before a batch is sealed, which cannot be undone
        table = store.read_file(job.features, job.id_column)
        store.check(table, job.id_column, wish.schema)
    split = EpsilonSplit(ZERO, ZERO, wish.epsilon)
    batch_id = job.of if isinstance(job.of, str) else sealed(services, job.of, split, wish.kind, progress)
    answer_id = _standing(services, batch_id, wish)
    if answer_id is None:
        if table is not None:
            store.put(batch_id, table, job.id_column)
        _, answer = services.feature_answers.request(batch_id, wish, ACTOR)
        answer_id = str(answer["id"])
    progress("computing", 0.5)
    finish(services, answer_id)
    return write_out(services, answer_id, job.out, force=job.force)


def _standing(services: Services, batch_id: str, wish: Wish) -> str | None:
    """What an interrupted run left charged with these very parameters."""
    found = services.database.read(f"{wish.kind}.standing", lambda c: services.answers.of_batch(c, batch_id))
    working = [answer for answer in found if answer.kind == wish.kind and answer.state in WORKING]
    if not working:
        return None
    plan = services.feature_answers.plan(batch_id, wish)
    for answer in working:
        if answer.parameters == plan.parameters and answer.split == plan.split:
            return answer.id
    return None
