"""Answers on files: a sealed batch or labels, and what a kind needs beside them, in; one signed document out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labels_party.bootstrap import Services
from labels_party.contents import of_answer
from labels_party.files.jobs import charged, finish, refuse_costly, refuse_unnamed, still_unfinished, waits
from labels_party.kinds.calibration.scores import Scores
from labels_party.labels.batches import Batch
from labels_party.labels.label_file import LabelFile
from labels_party.labels.standing import ACCEPTED
from labels_party.ledger.populations import Population
from labels_party.work.kind import ANSWERS, Kind
from shared.columnar.csv_text import with_lines
from shared.errors import InvalidInput, InvalidRows
from shared.privacy import ZERO, Epsilon, EpsilonSplit, parse_delta
from shared.schemas.base import Ask
from shared.service.cli import Progress, replacing, writable


@dataclass(frozen=True)
class AnswerErrand:
    """What is `asked` of `kind`, by `actor`. `features`: the owner's table that it is made of, and its column of ids;
    None: the table that is stored already, or none is needed."""

    out: Path
    force: bool
    actor: str
    kind: Kind[Any, Any]
    asked: Ask
    features: tuple[Path, str] | None = None
    elsewhere = "name its batch with --batch"

    def wish(self, population: Population) -> Any:
        return self.kind.wish(population, self.asked)

    def ready(self, services: Services, population: Population) -> None:
        wish = self.wish(population)
        writable(self.out, self.force)
        if self.features is not None:  # refused here, before a batch is sealed
            path, id_column = self.features
            services.features.check(services.features.read_file(path, id_column), id_column, wish.schema)

    def check(self, population: Population, _n: int) -> None:
        refuse_unnamed(population, self.actor, "the answer")
        members = self.asked.model_dump()
        epsilon, delta = Epsilon.parse(members["epsilon"], positive=True), parse_delta(members.get("delta", "0"))
        refuse_costly(population, EpsilonSplit(ZERO, ZERO, epsilon, delta))

    def start(self, services: Services, batch: Batch, population: Population) -> str:
        refuse_unnamed(population, self.actor, "the answer")
        wish, unfinished = self.wish(population), still_unfinished(services, batch.id, self.kind.name)
        if unfinished:
            # what it costs, not what was wished for: it may need less δ
            plan = self.kind.plan(batch, population, wish)
            for work in unfinished:
                if (work.plan, work.split) == (plan.plan, plan.split):
                    return work.id
        if self.features is not None:
            path, id_column = self.features
            services.features.put(batch.id, services.features.read_file(path, id_column), id_column)
        return charged(services, batch.id, ANSWERS, lambda: services.work.ask(self.kind, batch.id, wish, self.actor))

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

    def ready(self, services: Services, population: Population) -> None:
        super().ready(services, population)
        wish = self.wish(population)
        if len(self.columns) <= len(wish.grids):
            raise InvalidInput(f"The shape '{wish.shape}' has two scores: name the second with --score-2-column.")
        if len(set(self.columns)) < len(self.columns):
            raise InvalidInput("Each of the columns, for ids and scores, needs a name of its own.")
        self._read(services, population)

    def _file(self) -> LabelFile:
        return LabelFile.open(self.scores, self.columns, names_are_public=True)

    def _read(self, services: Services, population: Population) -> Scores:
        grids = self.wish(population).grids
        try:
            return Scores.read(self._file().chunks(), population.label, services.secrets, grids, self.columns)
        except InvalidRows as error:
            raise with_lines(error, self.scores) from None

    def start(self, services: Services, batch: Batch, population: Population) -> str:
        refuse_unnamed(population, self.actor, "the answer")
        wish, mac = self.wish(population), self._read(services, population).mac(services.secrets)
        kind = services.calibration
        same = services.database.read("calibration.standing", lambda c: kind.same(c, batch.id, wish, mac))
        if same is not None:
            return same

        def ask() -> tuple[int, dict[str, Any]]:
            return kind.request(batch.id, lambda _: self._file().chunks(), wish, self.actor, fields=self.columns)

        try:
            return charged(services, batch.id, ANSWERS, ask)
        except InvalidRows as error:
            raise with_lines(error, self.scores) from None


def planned(services: Services, batch_id: str, kind: Kind[Any, Any], asked: Ask) -> dict[str, Any]:
    """What an answer would cost and do, of a kind that is `previewed`; nothing is charged."""
    batch, population = services.database.read(f"{kind.name}.look", lambda c: services.work.allowed(c, batch_id))
    found = kind.preview(batch, population, kind.wish(population, asked))
    return {"kind": kind.name, "batch": batch_id} | found


def write_out(services: Services, answer_id: str, out: Path, *, force: bool = False) -> dict[str, Any]:
    """Write the signed document of a published answer, byte for byte, and say what it is."""
    envelope = services.work.envelope(answer_id)
    with replacing(out, force) as path:
        path.write_bytes(envelope)
    more = {"out": str(out), "labels_key": str(services.home.public_key)}
    return of_answer(envelope, services.key.public) | more
