"""Job: seal a file of labels (or take a sealed batch), charge one work on it, write its signed result to files.

An `Errand` is the part that depends on the kind of work. A refusal charges nothing and leaves no batch or file behind.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from label_dp.actors import with_names
from label_dp.audit.events import BATCH_SEALED
from label_dp.cli.output import warn
from label_dp.columnar.parts import TableParts
from label_dp.errors import AlreadyReleased, BudgetExceeded, Conflict, InvalidInput
from label_dp.named_modules import installed
from label_dp.privacy import ZERO, EpsilonSplit
from label_dp.progress import Progress
from label_dp.schemas.json_types import JsonObject
from label_dp.store.idempotency import Reply
from label_dp.store.table_addresses import Last
from label_dp.store.table_files import table_at
from labels_party.bootstrap import Services
from labels_party.labels.batch_uses import ACCEPTED, PUBLISHED, WORKING
from labels_party.labels.batches import Batch
from labels_party.labels.events.files import EventFile
from labels_party.labels.from_files import FileBatches, file_columns
from labels_party.labels.label_file import LabelFile
from labels_party.labels.seal import SameExamples
from labels_party.ledger.ceilings import judge_ceilings, second_person
from labels_party.ledger.populations import NO_ERASURE, Population
from labels_party.ledger.rules import Account, judge
from labels_party.work.kind import RELEASES, Family, Work

if TYPE_CHECKING:
    import pyarrow as pa
    from sqlalchemy.engine import Connection

SEALS = 100  # of a population, looked through at once

ACTOR = "command line"


@dataclass(frozen=True)
class LabelsFile:
    """File of labels, or of events where they come from events, that becomes a sealed batch of `population`; `examples`
    lists all ids, each of which begins with `id_prefix`. Either may be a table in memory."""

    path: Path | str | pa.Table
    id_column: str
    population: Population
    examples: Path | str | pa.Table | None = None
    id_prefix: str | None = None


Seal = Callable[[Population, str, Callable[[int], None], Progress], str]


class Errand(Protocol):
    """Part of a job that depends on the kind of work: its checks, its charge, its output."""

    @property
    def elsewhere(self) -> str:
        """Return advice for the case that the same examples are a batch of another population."""

    def ready(self, services: Services, population: Population) -> None:
        """Read further inputs and refuse an output that cannot be written, before a batch is sealed."""

    def check(self, services: Services, population: Population, n: int) -> None:
        """Refuse for n examples what can be refused without labels, before the seal."""

    def start(self, services: Services, batch: Batch, population: Population) -> str:
        """Charge the work, or find what an interrupted run left charged; return its id."""

    def deliver(self, services: Services, name: str, progress: Progress) -> dict[str, Any]:
        """Compute the work, write its result and describe it."""


def run(
    services: Services,
    of: str | LabelsFile,
    errand: Errand,
    progress: Progress,
    warned: Callable[[str], None] = lambda text: warn(text),
) -> dict[str, Any]:
    """Run a job on a sealed batch (its id) or a file of labels; `warned` gets warnings. Raises typed errors."""
    progress("reading", 0.02)
    if isinstance(of, str):
        batch, population = look(services, of)
        errand.ready(services, population)
        note, read = "", dict[str, str]()
    else:
        errand.ready(services, of.population)
        batch, population, note, read = _sealed(services, of, errand, progress, warned)
    if beyond := batch.beyond(population):
        warned(beyond)
    result = errand.deliver(services, errand.start(services, batch, population), progress)
    services.sealer.compaction.wait()  # the end of the process would stop it
    if population.events is not None and not isinstance(of, str):
        result |= {"events": services.sealer.events.counts(batch.id)}
    return result | ({"note": note} if note else {}) | ({"read": read} if read else {})


def _sealed(
    services: Services, file: LabelsFile, errand: Errand, progress: Progress, warned: Callable[[str], None]
) -> tuple[Batch, Population, str, dict[str, str]]:
    """Seal the file; return the batch, or the earlier one with the same examples, its population, a note, and the
    versions of lake tables that were read."""
    files = FileBatches(services.populations, services.batches, services.sealer)
    local = services.cluster is None
    seal, read = _here(services, files, file, errand) if local else (_on_spark(services, files, file), {})
    population = services.database.read("population.look", lambda c: services.populations.declared(c, file.population))
    others = services.database.read("population.others", lambda c: services.populations.new_beside(c, population))
    try:
        sealed_id = seal(population, ACTOR, lambda n: errand.check(services, population, n), progress)
    except SameExamples as same:
        sealed, owner = look(services, same.batch)
        if owner.id != population.id:
            raise Conflict(f"{same.detail} It belongs to population '{owner.name}': {errand.elsewhere}.") from None
        note = f"these examples were sealed at {sealed.sealed}; the labels of then were used, not this file's"
        return sealed, owner, note, read
    if not population.created and population.missing_label is None:
        warned(
            f"In the new population '{population.name}' {NO_ERASURE}. Its rules cannot change; "
            "--missing-label V gives another population such a value."
        )
    if others:
        warned(others)
    return (*look(services, sealed_id), "", read)


def _here(services: Services, files: FileBatches, file: LabelsFile, errand: Errand) -> tuple[Seal, dict[str, str]]:
    """Return a seal by this process, of Parquet, CSV or events, and the versions of lake tables that it reads."""
    columns = file_columns(file.population, file.id_column, file.population.label, listed=file.examples is not None)
    labels: LabelFile | EventFile
    last = partial(_last, services, file.population)
    if file.population.events is None:
        labels = LabelFile.of(_table(file.path, last), columns["labels"])
    elif not isinstance(file.path, str | Path):
        raise InvalidInput("Events are a file; name its path.")
    else:
        labels = EventFile.open(table_at(file.path, last))
    examples = None
    if file.examples is not None:
        examples = LabelFile.of(_table(file.examples, last), columns["examples"], names_are_public=True)
    errand.check(services, file.population, (labels if examples is None else examples).rows or 1)
    prefix = file.id_prefix
    tables = {"labels": labels.path, "examples": None if examples is None else examples.path}
    read = {name: str(table) for name, table in tables.items() if isinstance(table, TableParts) and table.source}
    return (lambda of, actor, check, progress: files.seal(of, labels, examples, actor, check, progress, prefix)), read


def _table(source: Path | str | pa.Table, last: Last) -> Any:
    """Find the table at an address; one in memory stays."""
    return table_at(source, last) if isinstance(source, str | Path) else source


def _last(services: Services, population: Population, table: str) -> str | None:
    """Return the version of a lake table that the newest batch of a population was sealed of; None if none was."""

    def look(connection: Connection) -> str | None:
        owner, before = services.populations.declared(connection, population), None
        while page := services.audit.newest(
            connection, before=before, limit=SEALS, kind=BATCH_SEALED, population=owner.id
        ):
            for event in page:
                for source in event.details.get("tables", {}).values():
                    if source["table"] == table:
                        return str(source["snapshot"])
            before = page[-1].sequence
        return None

    return services.database.read("seals.look", look)


def _on_spark(services: Services, files: FileBatches, file: LabelsFile) -> Seal:
    """Return a seal by Spark tasks, of Parquet on any store."""
    batches = installed("labels_party.spark.files").SparkBatches(services.cluster, files)
    labels = (str(file.path), file.id_column, file.population.label)
    examples = None if file.examples is None else (str(file.examples), file.id_column)
    prefix = file.id_prefix
    return lambda of, actor, check, progress: batches.seal(of, labels, examples, actor, check, progress, prefix)


def look(services: Services, batch_id: str) -> tuple[Batch, Population]:
    """Read a batch and its population. Raises NotFound."""
    return services.database.read("batch.look", lambda c: services.batches.get(c, batch_id))


def refuse_early(
    services: Services, population: Population, split: EpsilonSplit, details: Mapping[str, Any], actor: str, what: str
) -> None:
    """Refuse, before anything is sealed, what ledger or policy refuse of every batch, and requests without a name where
    a second person approves. Raises BudgetExceeded, InvalidInput."""
    account = Account(population.lifetime, ZERO, population.lifetime_delta)
    verdict = judge(account, split)
    if isinstance(verdict, BudgetExceeded):
        raise verdict

    def look(connection: Connection) -> bool:
        audit = services.ledger.audit
        judge_ceilings(audit, connection, population, None, account, split, details, approved=True)
        return second_person(audit, connection, population, split)

    if services.database.read("charge.look", look) and actor == ACTOR:
        raise InvalidInput(f"Where a second person approves, say who asks for {what}: --as NAME.")


def still_unfinished(services: Services, batch_id: str, kind: str) -> list[Work]:
    """Return unfinished work of that kind, which an interrupted run may have left."""
    works = services.database.read(f"{kind}.standing", lambda c: services.work.of_batch(c, batch_id, kind))
    return [work for work in works if work.state in (ACCEPTED, *WORKING)]


def charged(services: Services, batch_id: str, family: Family, ask: Callable[[], Reply]) -> str:
    """Return the id of what `ask` charged. Raises AlreadyReleased, with the command that writes the first one again."""
    try:
        return str(ask()[1]["id"])
    except AlreadyReleased as error:
        of = f"{family.noun}.standing"
        earlier = services.database.read(of, lambda c: services.work.of_batch(c, batch_id))
        published = [w.id for w in earlier if w.state == PUBLISHED and services.work.family(w) is family]
        if not published:
            raise
        raise AlreadyReleased(f"{error.detail} Once more, free of charge: {again(family, published[-1])}.") from None


def again(family: Family, name: str) -> str:
    """Return the command that writes published work again."""
    command = "message" if family is RELEASES else "answer"
    return f"labels-party {command} {name} --out FILE writes it"


def waits(services: Services, work: Work, out: Path) -> JsonObject:
    """Describe work that waits for a second person, and the next step."""
    population = services.database.read("work.look", lambda c: services.work.about(c, work))[1]
    command = "message" if services.work.family(work) is RELEASES else "answer"
    next_step = (
        f"nothing is charged yet: a second person runs  labels-party approve {work.id} --as NAME ; "
        f"then  labels-party {command} {work.id} --out {out}  writes the {command}"
    )
    batch: JsonObject = {"batch": work.batch, "population": population.name, "state": work.state}
    names = services.database.read("work.names", services.apikeys.names)
    actor = with_names({"requested_by": work.requested_by}, names)
    return {**batch, "epsilon": work.epsilon, **actor, "next": next_step}


def finish(services: Services, work_id: str, family: Family, progress: Progress = lambda _what, _share: None) -> None:
    """Draw work here, or wait for a running service's worker that leased it. Raises NotFound (also for another family:
    nothing is drawn), Conflict (failed, or waiting for a second person)."""
    services.database.read("work.look", lambda c: services.work.get(c, work_id, family))
    while True:
        services.pipeline.run(work_id, progress)
        work = services.database.read("work.look", lambda c: services.work.get(c, work_id))
        if work.state not in WORKING:
            break
        time.sleep(0.2)
    if work.state == ACCEPTED:
        raise Conflict(
            f"{family.noun.capitalize()} '{work_id}' waits for a second person: "
            f"labels-party approve {work_id} --as NAME"
        )
    if work.state != PUBLISHED:
        detail = (work.problem or {}).get("detail", "see the service's log")
        what = "Release" if family is RELEASES else work.kind.capitalize()
        raise Conflict(f"{what} '{work.id}' failed: {detail}")
