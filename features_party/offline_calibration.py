"""`calibrate` on files, with no service running: account for the answer, apply its map, draw what it changed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from features_party.bootstrap import Services
from features_party.calibrating import (
    Labelled,
    calibrated,
    read_scores,
    register_calibrated,
    save_calibrated,
    with_messages,
    with_true_labels,
    write_scores,
)
from features_party.evaluation import categories
from features_party.intake.accept import PLAIN
from features_party.intake.answers import SignedAnswer
from features_party.offline import accept_all, read_for_training
from features_party.plots import require_plots, save_diagram
from features_party.registry.folder import SavedModel
from shared.errors import InvalidFile, InvalidInput, NotFound
from shared.message.answer import read_answer
from shared.message.calibration import Calibration
from shared.message.signing import VerifyingKey
from shared.service.cli import Progress, replacing


@dataclass(frozen=True)
class CalibrateJob:
    """`score_map`: a file, or an accepted answer by its id or digest. `model` (a folder, or an id of the registry) or
    `scores`; labels, for the diagrams, true or in messages."""

    score_map: str
    labels_key: VerifyingKey | None
    model: str | None = None
    scores: Path | None = None
    id_column: str | None = None
    score_column: str | None = None
    examples: Path | None = None
    label_column: str | None = None
    messages: tuple[Path, ...] = ()
    out: Path | None = None
    plots: Path | None = None
    clip: bool = False
    interpolate: bool = False
    force: bool = False
    score_2_column: str | None = None

    @property
    def folder(self) -> Path | None:
        """The model's, where it is named by its folder."""
        return Path(self.model) if self.model is not None and Path(self.model).is_dir() else None

    def check(self) -> None:
        """Raises InvalidInput where the parts do not go together."""
        if (self.model is None) == (self.scores is None):
            raise InvalidInput("Name a model with --model, or a file of scores with --scores.")
        if self.scores is not None and (self.id_column is None or self.score_column is None or self.out is None):
            raise InvalidInput("--scores needs --id-column, --score-column and --out.")
        if self.scores is None and (self.score_column is not None or self.score_2_column is not None):
            raise InvalidInput("--score-column and --score-2-column go with --scores; a model makes its own.")
        if self.scores is not None and (self.examples is not None or self.messages):
            raise InvalidInput("The labels of --scores are in a column of that file: --label-column.")
        if self.folder is not None and self.out is None:
            raise InvalidInput("The folder of a model needs --out, the new folder.")
        if self.plots is None:
            if self.examples is not None or self.label_column is not None or self.messages or self.clip:
                raise InvalidInput("Labels are for diagrams: say --plots FOLDER.")
            return
        require_plots()
        if self.scores is not None and self.label_column is None:
            raise InvalidInput("Diagrams need labels: --label-column.")
        if self.model is not None:
            labelled = (self.label_column is None) != (not self.messages)
            if self.examples is None or not labelled:
                raise InvalidInput("Diagrams need --examples with --label-column, or with --message and --id-column.")
            if self.messages and self.clip:
                raise InvalidInput("True labels alone can be clipped with --clip, not those of a --message.")
            if self.messages and self.id_column is None:
                raise InvalidInput("--message needs --id-column, that of --examples.")


def apply_calibration(services: Services, job: CalibrateJob, progress: Progress) -> dict[str, Any]:
    """What was applied to what. Everything that can be refused is refused before the answer is accounted for."""
    given = _given(services, job)
    found = given.calibration()
    progress("reading", 0.1)
    saved = None
    if job.model is not None:
        saved = services.models.named(job.model)
        calibrated(saved, found, "")  # whether it may be
    file = None
    if job.scores is not None:
        assert job.id_column is not None
        assert job.score_column is not None
        columns = [job.score_column, *([] if job.score_2_column is None else [job.score_2_column])]
        file = read_scores(job.scores, job.id_column, columns, job.label_column, found)
    fresh = not given.kept and services.answers.accept(given.envelope, job.labels_key).fresh
    accepted = found.interpolated(job.interpolate)
    result = _told(accepted, fresh)
    labelled: Labelled | None = None
    if saved is not None:
        progress("applying", 0.3)
        created = services.audit.now()
        if job.out is not None:
            with replacing(job.out, job.force) as temporary:
                save_calibrated(saved, accepted, created, temporary)
            result["model"] = str(job.out)
        else:
            assert job.model is not None
            result["model"] = register_calibrated(services.database, services.models, job.model, accepted, created)
        labelled = _labelled(services, job, saved, progress)
    elif file is not None and job.out is not None:
        result["rows"] = write_scores(file, accepted, job.out, force=job.force)
        result["table"] = str(job.out)
        labelled = file.labelled()
    if labelled is not None and job.plots is not None:
        progress("drawing", 0.8)
        result |= _drawn(labelled.clipped(accepted) if job.clip else labelled, accepted, job.plots)
        result["labels_clipped"] = job.clip
    return result


def _given(services: Services, job: CalibrateJob) -> SignedAnswer:
    """The answer that --map names, verified; a file goes before an id. Raises InvalidFile, NotFound, Conflict too."""
    path = Path(job.score_map)
    if not path.exists() and PLAIN.fullmatch(job.score_map):
        try:
            return services.answers.open(job.score_map)
        except NotFound:
            if not path.suffix:
                raise NotFound(
                    f"'{job.score_map}' is no file, and no answer of this id was accepted here; fetch it with --url."
                ) from None
    return services.answers.verify(read_answer(path), job.labels_key)


def _told(found: Calibration, fresh: bool) -> dict[str, Any]:
    answer = found.answer
    return {
        "answer": answer.answer,
        "fresh": fresh,
        "population": answer.population.id,
        "population_name": answer.population.name,
        "label": answer.population.label,
        "batch": answer.batch,
        "n": answer.n,
        "epsilon": dict(answer.epsilon),
        "loss": found.loss,
        "shape": found.shape,
        "pieces": found.pieces,
        "document_digest": found.digest,
    }


def _labelled(services: Services, job: CalibrateJob, saved: SavedModel, progress: Progress) -> Labelled | None:
    if job.plots is None or job.examples is None:
        return None
    threads = services.settings.threads
    if job.label_column is not None:
        return with_true_labels(saved, job.examples, job.label_column, threads=threads)
    progress("joining", 0.5)
    table = read_for_training(services.settings, job.examples, str(job.id_column), tuple(categories(saved)))
    return with_messages(saved, accept_all(services, list(job.messages), job.labels_key), table, threads=threads)


def _drawn(labelled: Labelled, found: Calibration, folder: Path) -> dict[str, Any]:
    label, diagrams = found.answer.population.label, labelled.diagrams(found)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidFile(f"The folder '{folder}' cannot be made ({error.strerror}).") from None
    paths = []
    for when, diagram in zip(("before", "after"), diagrams, strict=True):
        paths.append(folder / f"{when}.png")
        save_diagram(diagram, f"{when} calibration", label, paths[-1])
    return {
        "reliability": {when: d.as_json() for when, d in zip(("before", "after"), diagrams, strict=True)},
        "errors": labelled.errors(found),
        "plots": [str(path) for path in paths],
    }
