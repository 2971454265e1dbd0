"""Calibrations on files, for the command line: the same services that the API calls, in one go."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labels_party.answers.answers import WORKING, StoredAnswer
from labels_party.answers.calibrations import CalibrationWish
from labels_party.answers.scores import Scores
from labels_party.bootstrap import Services
from labels_party.budget.ledger import Account, judge
from labels_party.budget.populations import Population
from labels_party.labels.batches import Batch
from labels_party.labels.from_files import FileBatches, file_columns
from labels_party.labels.label_file import LabelFile
from labels_party.labels.seal import SameExamples
from labels_party.labels.standing import PUBLISHED
from shared.csv_text import with_lines
from shared.errors import AlreadyReleased, BudgetExceeded, Conflict, InvalidInput, InvalidRows, SecondPersonNeeded
from shared.message.answer import trusted_answer
from shared.message.calibration import CALIBRATION, open_calibration
from shared.message.signing import VerifyingKey
from shared.privacy import ZERO, EpsilonSplit
from shared.service.cli import Progress, replacing, writable

ACTOR = "command line"


@dataclass(frozen=True)
class LabelsInFile:
    """A file of labels that becomes a sealed batch of `population` first."""

    labels: Path
    id_column: str
    label_column: str
    population: Population
    examples: Path | None = None


@dataclass(frozen=True)
class CalibrateJob:
    """`of`: the id of a sealed batch, or a file of labels."""

    of: str | LabelsInFile
    scores: Path
    id_column: str
    score_column: str
    wish: CalibrationWish
    out: Path
    force: bool = False
    score_2_column: str | None = None

    @property
    def fields(self) -> tuple[str, ...]:
        """Columns of the file of scores: that of ids, and one for each score of the map. Raises InvalidInput."""
        scores = [name for name in (self.score_column, self.score_2_column) if name is not None]
        if len(scores) < len(self.wish.grids):
            raise InvalidInput(f"The shape '{self.wish.shape}' has two scores: name the second with --score-2-column.")
        if len({self.id_column, *scores}) <= len(scores):
            raise InvalidInput("Each of the columns, for ids and scores, needs a name of its own.")
        return (self.id_column, *scores)


def calibrate(services: Services, job: CalibrateJob, progress: Progress) -> dict[str, Any]:
    """Scores in, signed map out. Raises typed errors; a refusal charges nothing and leaves no file behind."""
    writable(job.out, job.force)
    fields = job.fields
    file = LabelFile.open(job.scores, fields, names_are_public=True)
    progress("reading scores", 0.05)
    try:
        # before a batch is sealed, which cannot be undone, and for what an interrupted run left charged
        scores = Scores.read(file.chunks(), _label(services, job), services.secrets, job.wish.grids, fields)
        batch_id = (
            job.of
            if isinstance(job.of, str)
            else sealed(services, job.of, EpsilonSplit(ZERO, ZERO, job.wish.epsilon), CALIBRATION, progress)
        )
        mac = scores.mac(services.secrets)
        standing = services.database.read(
            "calibration.standing", lambda c: services.calibrations.same(c, batch_id, job.wish, mac)
        )
        answer_id = standing or _charged(services, batch_id, file, job.wish, fields)
    except InvalidRows as error:
        raise with_lines(error, job.scores) from None
    progress("computing", 0.5)
    finish(services, answer_id)
    return write_out(services, answer_id, job.out, force=job.force)


def _label(services: Services, job: CalibrateJob) -> str:
    if isinstance(job.of, LabelsInFile):
        return job.of.population.label
    batch_id = job.of
    return services.database.read("batch.look", lambda c: services.batches.get(c, batch_id))[1].label


def _charged(services: Services, batch_id: str, file: LabelFile, wish: CalibrationWish, fields: tuple[str, ...]) -> str:
    try:
        _, answer = services.calibrations.request(batch_id, lambda _: file.chunks(), wish, ACTOR, fields=fields)
    except AlreadyReleased as error:
        earlier = services.database.read("answer.standing", lambda c: services.answers.of_batch(c, batch_id))
        published = [a for a in earlier if a.state == PUBLISHED]
        again = (
            f" To write its signed answer once more, free of charge: labels-party answer {published[-1].id} --out FILE."
            if published
            else ""
        )
        raise AlreadyReleased(error.detail + again) from None
    return str(answer["id"])


def sealed(services: Services, given: LabelsInFile, split: EpsilonSplit, what: str, progress: Progress) -> str:
    """The id of the batch of a file of labels; of the one that has the same examples, where there is one.

    `split` is what will be charged to it for a `what`; what is refused for it is refused before the seal.
    """
    wanted = file_columns(given.population, given.id_column, given.label_column, listed=given.examples is not None)
    labels = LabelFile.open(given.labels, wanted["labels"])
    examples = None
    if given.examples is not None:
        examples = LabelFile.open(given.examples, wanted["examples"], names_are_public=True)
    files = FileBatches(services.populations, services.batches, services.sealer)
    population = services.database.read("population.look", lambda c: files.declared(c, given.population))

    def check(_n: int) -> None:
        """Whatever can be refused without labels is refused before the seal."""
        if population.four_eyes:
            raise SecondPersonNeeded(
                f"In population '{population.name}' a second person approves what is charged, and a {what} is "
                "charged as it is asked for."
            )
        verdict = judge(_untouched(population), split)
        if isinstance(verdict, BudgetExceeded):
            raise verdict

    check(1)
    try:
        return files.seal(population, labels, examples, ACTOR, check, progress).id
    except SameExamples as same:
        _, owner = _look(services, same.batch)
        if owner.id != population.id:
            raise Conflict(
                f"{same.detail} It belongs to population '{owner.name}': name its batch with --batch."
            ) from None
        return same.batch


def _untouched(population: Population) -> Account:
    return Account(population.lifetime, ZERO, population.lifetime_delta)


def _look(services: Services, batch_id: str) -> tuple[Batch, Population]:
    return services.database.read("batch.look", lambda c: services.batches.get(c, batch_id))


def finish(services: Services, answer_id: str) -> StoredAnswer:
    """Run the answer here, or wait for the worker of a running service that took it. Raises Conflict if it failed."""
    while True:
        services.answer_pipeline.run(answer_id)
        answer = services.database.read("answer.look", lambda c: services.answers.get(c, answer_id))
        if answer.state not in WORKING:
            break
        time.sleep(0.2)
    if answer.state != PUBLISHED:
        detail = (answer.problem or {}).get("detail", "see the service's log")
        raise Conflict(f"{answer.kind.capitalize()} '{answer_id}' failed: {detail}")
    return answer


def write_out(services: Services, answer_id: str, out: Path, *, force: bool = False) -> dict[str, Any]:
    """Write the signed document of a published answer, byte for byte, and say what it is."""
    envelope = services.database.read("answer.document", lambda c: services.answers.envelope(c, answer_id))
    with replacing(out, force) as path:
        path.write_bytes(envelope)
    return described(envelope, services.key.public) | {
        "out": str(out),
        "labels_key": str(services.home.public_key_path),
    }


def described(envelope: bytes, key: VerifyingKey) -> dict[str, Any]:
    """What a signed answer of any kind says, once it is verified. Raises the errors of `trusted_answer`."""
    found, digest = trusted_answer(envelope, key, None)
    said: dict[str, Any] = {
        "answer": found.answer,
        "kind": found.kind,
        "batch": found.batch,
        "audiences": list(found.audiences),
        "epsilon": dict(found.epsilon),
        "parameters": found.parameters,
        "sha256": digest,
        "population": found.population.name,
        "label": found.population.label,
        "examples": found.n,
        "epsilon_spent": found.epsilon_spent,
        "epsilon_lifetime": found.epsilon_lifetime,
        "delta_spent": found.delta_spent,
        "delta_lifetime": found.delta_lifetime,
        "adjacency": found.adjacency,
        "facts": found.mechanism.facts,
        "key_id": found.key_id,
    }
    if found.kind == CALIBRATION:  # its map is long, and for programs
        return said | {"pieces": open_calibration(envelope, key, None).pieces}
    return said | found.result
