"""Answers on files: a sealed batch or labels and the inputs of a kind in; one signed document out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from label_dp.columnar.csv_text import with_lines
from label_dp.columnar.parts import TableParts, TablePath
from label_dp.errors import InvalidInput, InvalidRows
from label_dp.privacy import ZERO, Epsilon, EpsilonSplit, parse_delta
from label_dp.progress import Progress
from label_dp.schemas.base import Ask
from label_dp.schemas.calibration import Calibration
from label_dp.store.output_files import paid_for, replacing, writable
from labels_party.bootstrap import Services
from labels_party.companions.kinds.calibration.kind import CalibrationRequest, CalibrationWish
from labels_party.companions.kinds.calibration.scores import Scores
from labels_party.companions.services import companions_of
from labels_party.contents import of_answer
from labels_party.files.jobs import again, charged, finish, refuse_early, still_unfinished, waits
from labels_party.labels.batch_uses import ACCEPTED
from labels_party.labels.batches import Batch
from labels_party.labels.label_file import LabelFile
from labels_party.ledger.populations import Population
from labels_party.work.kind import ANSWERS, PreviewedKind, QueuedKind, SchemaKind


@dataclass(frozen=True)
class AnswerErrand:
    """Request `asked` of `kind`, by `actor`.

    `features` are the owner's input table and its column of ids; None: the table that is stored already, or none is
    needed.
    """

    out: Path
    force: bool
    actor: str
    kind: QueuedKind[Any]
    asked: Ask
    features: tuple[TablePath, str] | None = None
    elsewhere = "name its batch with --batch"

    def wish(self, _services: Services, population: Population) -> Any:
        assert isinstance(self.kind, SchemaKind)
        return self.kind.wish(population, self.asked)

    def ready(self, services: Services, population: Population) -> None:
        wish = self.wish(services, population)
        writable(self.out, self.force)
        if self.features is not None:  # refused here, before a batch is sealed
            path, id_column = self.features
            store = companions_of(services).features
            store.check(store.read_file(path, id_column), id_column, wish.schema)

    def check(self, services: Services, population: Population, _n: int) -> None:
        members = self.asked.model_dump()
        epsilon, delta = Epsilon.parse(members["epsilon"], positive=True), parse_delta(members.get("delta", "0"))
        split, details = EpsilonSplit(ZERO, ZERO, epsilon, delta), {"answer": self.kind.name}
        refuse_early(services, population, split, details, self.actor, "the answer")

    def start(self, services: Services, batch: Batch, population: Population) -> str:
        wish, unfinished = self.wish(services, population), still_unfinished(services, batch.id, self.kind.name)
        if unfinished:
            # its cost, not the requested total: it may need less δ
            plan = self.kind.plan(batch, population, wish)
            expected = (plan.plan, plan.split, plan.inputs_mac, plan.by_audience)
            for work in unfinished:
                if (work.plan, work.split, work.inputs_mac, work.by_audience) == expected:
                    return work.id
        self.check(services, population, batch.n or 1)
        if self.features is not None:
            path, id_column = self.features
            store = companions_of(services).features
            store.put(batch.id, store.read_file(path, id_column), id_column)
        return charged(services, batch.id, ANSWERS, lambda: services.work.ask(self.kind, batch.id, wish, self.actor))

    def deliver(self, services: Services, name: str, progress: Progress) -> dict[str, Any]:
        work = services.database.read("answer.look", lambda c: services.work.get(c, name))
        if work.state == ACCEPTED:
            return {"answer": name, "kind": work.kind} | waits(services, work, self.out)
        progress("computing", 0.5)
        finish(services, name, ANSWERS)
        with paid_for(again(ANSWERS, name)):
            return write_out(services, name, self.out, force=self.force)


@dataclass(frozen=True)
class CalibrationErrand(AnswerErrand):
    """Request with the `scores` in a file; with a second column of them the map has two. `columns`: of ids, and of each
    score."""

    scores: TablePath = Path()
    columns: tuple[str, ...] = ()

    def wish(self, services: Services, population: Population) -> CalibrationRequest:
        assert isinstance(self.asked, Calibration)
        wish = CalibrationWish.parse(self.asked)
        if len(self.columns) <= len(wish.grids):
            raise InvalidInput(f"The shape '{wish.shape}' has two scores: name the second with --score-2-column.")
        if len(set(self.columns)) < len(self.columns):
            raise InvalidInput("Each of the columns, for ids and scores, needs a name of its own.")
        file = LabelFile.open(self.scores, self.columns, names_are_public=True)
        try:
            read = Scores.read(file.chunks(), population.label, services.secrets, wish.grids, self.columns)
        except InvalidRows as error:
            raise file.with_places(error) from None
        return CalibrationRequest(wish, read)

    def start(self, services: Services, batch: Batch, population: Population) -> str:
        try:
            return super().start(services, batch, population)
        except InvalidRows as error:
            raise error if isinstance(self.scores, TableParts) else with_lines(error, self.scores) from None


def planned(services: Services, batch_id: str, kind: PreviewedKind[Any, Any], asked: Ask) -> dict[str, Any]:
    """Plan the cost and effect of an answer; nothing is charged."""
    batch, population = services.database.read(f"{kind.name}.look", lambda c: services.work.allowed(c, batch_id))
    preview = kind.preview(batch, population, kind.wish(population, asked))
    return {"kind": kind.name, "batch": batch_id} | preview


def write_out(services: Services, answer_id: str, out: Path, *, force: bool = False) -> dict[str, Any]:
    """Write the signed document of a published answer, byte for byte, and return its description."""
    envelope = services.work.envelope(answer_id)
    with replacing(out, force) as path:
        path.write_bytes(envelope)
    key = services.own_keys.of(envelope)
    return of_answer(envelope, key) | {"out": str(out), "labels_key": str(services.own_keys.public_file(key))}
