"""Answers on files: a sealed batch or labels, and what a kind needs beside them, in; one signed document out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labels_party.bootstrap import Services
from labels_party.contents import of_answer
from labels_party.files.jobs import charged, finish, refuse_costly, refuse_unnamed, still_unfinished, waits
from labels_party.kinds.calibration.kind import CalibrationWish
from labels_party.kinds.calibration.scores import Scores
from labels_party.kinds.linear_model import LinearModelWish
from labels_party.kinds.median import MedianWish
from labels_party.kinds.rectangle import RectangleWish
from labels_party.labels.batches import Batch
from labels_party.labels.label_file import LabelFile
from labels_party.labels.standing import ACCEPTED
from labels_party.ledger.populations import Population
from labels_party.work.kind import ANSWERS
from shared.columnar.csv_text import with_lines
from shared.errors import InvalidInput, InvalidRows
from shared.privacy import ZERO, EpsilonSplit
from shared.schemas.base import Ask
from shared.schemas.calibration import Calibration
from shared.schemas.linear_model import LinearModel
from shared.schemas.median import Median
from shared.schemas.rectangle import Rectangle
from shared.service.cli import Progress, replacing, writable

WISHES: dict[type[Ask], Any] = {Median: MedianWish, Rectangle: RectangleWish, LinearModel: LinearModelWish}


def wish_of(asked: Ask, scores: int = 0) -> Any:
    """What is asked for, checked as far as it can be without a batch. Raises InvalidInput and its kinds."""
    if isinstance(asked, Calibration):
        members = asked.model_dump(exclude={"option"})
        return CalibrationWish.parse(**members, options=asked.options, two=scores == 2)
    return WISHES[type(asked)].parse(**asked.model_dump())


@dataclass(frozen=True)
class AnswerErrand:
    """One answer of `kind`, asked for by `actor`. `features`: the owner's table that it is made of, and its column of
    ids; None: the table that is stored already, or none is needed."""

    out: Path
    force: bool
    actor: str
    kind: str
    wish: Any
    features: tuple[Path, str] | None = None
    elsewhere = "name its batch with --batch"

    def ready(self, services: Services, label: str) -> None:
        writable(self.out, self.force)
        if self.features is not None:  # refused here, before a batch is sealed
            path, id_column = self.features
            services.features.check(services.features.read_file(path, id_column), id_column, self.wish.schema)

    def check(self, population: Population, _n: int) -> None:
        refuse_unnamed(population, self.actor, "the answer")
        delta = getattr(self.wish, "delta_atto", 0)
        refuse_costly(population, EpsilonSplit(ZERO, ZERO, self.wish.epsilon, delta))

    def start(self, services: Services, batch: Batch, population: Population) -> str:
        refuse_unnamed(population, self.actor, "the answer")
        unfinished = still_unfinished(services, batch.id, self.kind)
        kind = services.work.kinds[self.kind]
        if unfinished:
            # what it costs, not what was wished for: it may need less δ
            plan = kind.plan(batch, population, self.wish)
            for work in unfinished:
                if (work.plan, work.split) == (plan.plan, plan.split):
                    return work.id
        if self.features is not None:
            path, id_column = self.features
            services.features.put(batch.id, services.features.read_file(path, id_column), id_column)
        return charged(services, batch.id, ANSWERS, lambda: services.work.ask(kind, batch.id, self.wish, self.actor))

    def deliver(self, services: Services, name: str, progress: Progress) -> dict[str, Any]:
        work = services.database.read("answer.look", lambda c: services.work.get(c, name))
        if work.state == ACCEPTED:
            return {"answer": name, "kind": work.kind} | waits(services, work, self.out)
        progress("computing", 0.5)
        finish(services, name, ANSWERS)
        return write_out(services, name, self.out, force=self.force)


@dataclass(frozen=True)
class CalibrationErrand(AnswerErrand):
    """Of the `scores` in a file; with a second column of them the map has two. `columns`: of ids, and of each score."""

    scores: Path = Path()
    columns: tuple[str, ...] = ()

    def ready(self, services: Services, label: str) -> None:
        super().ready(services, label)
        if len(self.columns) <= len(self.wish.grids):
            raise InvalidInput(f"The shape '{self.wish.shape}' has two scores: name the second with --score-2-column.")
        if len(set(self.columns)) < len(self.columns):
            raise InvalidInput("Each of the columns, for ids and scores, needs a name of its own.")
        self._read(services, label)

    def _file(self) -> LabelFile:
        return LabelFile.open(self.scores, self.columns, names_are_public=True)

    def _read(self, services: Services, label: str) -> Scores:
        try:
            return Scores.read(self._file().chunks(), label, services.secrets, self.wish.grids, self.columns)
        except InvalidRows as error:
            raise with_lines(error, self.scores) from None

    def start(self, services: Services, batch: Batch, population: Population) -> str:
        refuse_unnamed(population, self.actor, "the answer")
        mac = self._read(services, population.label).mac(services.secrets)
        kind = services.calibration
        same = services.database.read("calibration.standing", lambda c: kind.same(c, batch.id, self.wish, mac))
        if same is not None:
            return same

        def ask() -> tuple[int, dict[str, Any]]:
            return kind.request(batch.id, lambda _: self._file().chunks(), self.wish, self.actor, fields=self.columns)

        try:
            return charged(services, batch.id, ANSWERS, ask)
        except InvalidRows as error:
            raise with_lines(error, self.scores) from None


def planned(services: Services, batch_id: str, kind: str, wish: Any) -> dict[str, Any]:
    """What an answer of features would cost and do; nothing is charged."""
    batch, population = services.database.read(f"{kind}.look", lambda c: services.work.allowed(c, batch_id))
    return {"kind": kind, "batch": batch_id} | services.work.kinds[kind].preview(batch, population, wish)


def write_out(services: Services, answer_id: str, out: Path, *, force: bool = False) -> dict[str, Any]:
    """Write the signed document of a published answer, byte for byte, and say what it is."""
    envelope = services.work.envelope(answer_id)
    with replacing(out, force) as path:
        path.write_bytes(envelope)
    more = {"out": str(out), "labels_key": str(services.home.public_key)}
    return of_answer(envelope, services.key.public) | more
