"""Commands on files, with no service running: ask for a calibration or for sums, and apply a calibration.

Of sums, the columns named in a grouping are sent, and no others; this is no longer feature-oblivious, and says so.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from features_party.bootstrap import Services
from features_party.companions import asking, calibrated_models
from features_party.companions.codes import codes_of
from features_party.files.jobs import read_for_training
from features_party.models.folder import SavedModel
from features_party.models.reliability import save_diagram
from features_party.receive.acceptances import PLAIN
from features_party.receive.answers import SignedAnswer
from features_party.receive.labels_service import LabelsService
from features_party.receive.offers import pull_answer
from features_party.receive.pull_since import Patience, await_published
from features_party.receive.receipts import Delivery
from features_party.tables.feature_tables import read_features
from label_dp.columnar.parts import TableParts, TablePath
from label_dp.companions.kinds.calibration import CALIBRATION, CalibrationAnswer
from label_dp.companions.kinds.sum import SUM
from label_dp.documents.answer import read_answer
from label_dp.documents.signing import VerifyingKey
from label_dp.errors import Conflict, InvalidFile, InvalidInput, NotFound, Unavailable
from label_dp.privacy import Epsilon
from label_dp.progress import Progress
from label_dp.schemas.calibration import Calibration as Asking
from label_dp.schemas.json_types import JsonObject
from label_dp.schemas.sums import GroupSums
from label_dp.store.output_files import replacing


@dataclass(frozen=True)
class AnswerWait:
    """An answer about `batch`. `wait` seconds for its publication; 0: not at all."""

    batch: str
    labels_key: VerifyingKey | None = field(default=None, kw_only=True)
    wait: float = field(default=0.0, kw_only=True)


@dataclass(frozen=True)
class AskJob(AnswerWait):
    """`model`: a folder, or an id of the registry, that scores the examples of `file`; or else the columns of `file`
    that hold one score or two."""

    asked: Asking
    file: TablePath
    id_column: str
    model: str | None = None
    score_columns: tuple[str, ...] = ()

    def check(self) -> None:
        """Raises InvalidInput where the parts do not go together."""
        if (self.model is None) == (not self.score_columns):
            raise InvalidInput("Name a model with --model, or a column of scores in the file with --score-column.")
        asking.check_terms(self.asked, len(self.score_columns) or 1)


@dataclass(frozen=True)
class AnswerRun:
    """A charged answer about so many `rows`, and if its publication was waited for, what came and how our receipts
    went."""

    name: str
    state: str
    rows: int
    found: SignedAnswer | None = None
    delivery: Delivery | None = None

    def as_json(self) -> JsonObject:
        members: JsonObject = {} if self.found is None else self.found.summary() | {"fresh": self.found.fresh}
        if self.delivery is not None:
            members["receipts"] = self.delivery.as_json()
        return {"answer": self.name, "state": self.state, "rows": self.rows, **members}


def ask_and_pull(services: Services, service: LabelsService, job: AskJob, progress: Progress) -> AnswerRun:
    """Score, ask, wait, fetch, verify, account, acknowledge. `job.check` came before.

    Raises what `ask_calibration` and `pull_answer` raise; once the calibration is charged a repeated run goes on with
    it.
    """
    if job.labels_key is None:
        services.pinned.required()  # nothing is charged that could not be verified
    asking.require_allowance(service, job.batch)
    saved = None if job.model is None else services.models.named(job.model)
    scored = _scored(services, job, saved, progress)
    order = asking.ask_calibration(service, job.batch, scored, job.asked, progress)
    if saved is not None:
        calibrated_models.keep_scored(services.database, order["answer"], saved)
    run = AnswerRun(order["answer"], order["state"], len(scored.ids))
    epsilon = Epsilon.parse(str(job.asked.epsilon))
    return arrived(services, service, run, job, CALIBRATION, epsilon, progress)


def arrived(
    services: Services,
    service: LabelsService,
    run: AnswerRun,
    job: AnswerWait,
    kind: str,
    epsilon: Epsilon,
    progress: Progress,
) -> AnswerRun:
    """Wait for a charged answer of a kind if the job does, fetch, verify, account for it, acknowledge it. Raises as
    `pull_answer` and `require_asked`."""
    if not job.wait:
        return run
    try:
        await_published(service, run.name, Patience(job.wait), lambda what, _: progress(what, 0.7), noun="answer")
    except Unavailable as error:
        raise Unavailable(f"{error.detail} It is charged; the same command again goes on with it at no cost.") from None
    except Conflict as error:
        raise Conflict(f"{error.detail} A new one, with --additional-release or other terms, is charged too.") from None
    progress("fetching", 0.9)
    arrivals = services.arrivals(job.labels_key)
    envelope = pull_answer(service, run.name, arrivals.choose_key, services.settings.name)
    asking.require_asked(services.answers.verify(envelope, job.labels_key), kind, job.batch, epsilon)
    signed_answer = arrivals.answer(envelope)
    return replace(run, state="published", found=signed_answer, delivery=arrivals.acknowledge(service))


def _scored(services: Services, job: AskJob, saved: SavedModel | None, progress: Progress) -> asking.ScoreTable:
    """Raises InvalidFile, InvalidTable, InvalidRows, InvalidInput."""
    progress("reading", 0.05)
    if saved is None:
        columns = calibrated_models.score_columns(job.file, job.id_column, job.score_columns)
        return asking.ScoreTable(columns.table.ids, tuple(columns.scores.values()))
    asking.require_own_predictions(saved)
    table = read_features(job.file, job.id_column, text=None)
    progress("predicting", 0.15)
    return asking.model_scores(saved, table, threads=services.settings.threads)


@dataclass(frozen=True)
class CalibrateJob:
    """`score_map`: a file, or an accepted answer by its id or digest. `model` (a folder, or an id of the registry) or
    `scores`; labels, for the diagrams, true or in messages."""

    score_map: str
    labels_key: VerifyingKey | None
    model: str | None = None
    scores: TablePath | None = None
    id_column: str | None = None
    score_column: str | None = None
    examples: TablePath | None = None
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
    signed_answer = _given(services, job)
    calibration = asking.calibration_of(signed_answer)
    progress("reading", 0.1)
    saved = None
    if job.model is not None:
        saved = services.models.named(job.model)
        calibrated_models.require_scored(services.database, calibration.answer.id, saved)
        calibrated_models.calibrated(saved, calibration, "")  # whether it may be
    file = None
    if job.scores is not None:
        assert job.id_column is not None
        assert job.score_column is not None
        columns = [job.score_column, *([] if job.score_2_column is None else [job.score_2_column])]
        file = calibrated_models.read_scores(job.scores, job.id_column, columns, job.label_column, calibration)
    fresh = not signed_answer.kept and services.answers.accept(signed_answer.envelope, job.labels_key).fresh
    accepted = calibration.interpolated(job.interpolate)
    result = calibrated_models.of_calibration(accepted) | {"fresh": fresh}
    labelled: calibrated_models.Labelled | None = None
    if saved is not None:
        progress("applying", 0.3)
        created = services.audit.now()
        if job.out is not None:
            with replacing(job.out, job.force) as temporary:
                calibrated_models.save_calibrated(saved, accepted, created, temporary, services.models.key())
            result["model"] = str(job.out)
        else:
            assert job.model is not None
            result["model"] = calibrated_models.register_calibrated(
                services.database, services.models, job.model, accepted, created
            )
        labelled = _labelled(services, job, saved, progress)
    elif file is not None and job.out is not None:
        result["rows"] = calibrated_models.write_scores(file, accepted, job.out, force=job.force)
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


def _labelled(
    services: Services, job: CalibrateJob, saved: SavedModel, progress: Progress
) -> calibrated_models.Labelled | None:
    if job.plots is None or job.examples is None:
        return None
    threads = services.settings.threads
    if job.label_column is not None:
        return calibrated_models.with_true_labels(saved, job.examples, job.label_column, threads=threads)
    progress("joining", 0.5)
    table = read_for_training(services.settings, job.examples, str(job.id_column), None)
    return calibrated_models.with_messages(
        saved, services.messages.accept_all(job.messages, job.labels_key), table, threads=threads
    )


def _drawn(labelled: calibrated_models.Labelled, found: CalibrationAnswer, folder: Path) -> dict[str, Any]:
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


@dataclass(frozen=True)
class AskSumsJob(AnswerWait):
    """Sums of the labels of a batch by columns of `file`."""

    terms: GroupSums
    file: TablePath
    id_column: str

    @cached_property
    def by(self) -> list[str]:
        """Groupings: those of the terms, or else of the codes that the file holds. Raises InvalidInput, InvalidFile."""
        codes = None if self.terms.by or isinstance(self.file, TableParts) else codes_of(self.file)
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
    with asking.who_allows(job.batch, "sums"):
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
