"""One job: a sealed batch, or a file of labels that becomes one; one charged work on it; its signed result as files.

What a kind of work brings along is an `Errand`. A refusal charges nothing, and leaves no batch and no file behind.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from label_dp.actors import with_names
from label_dp.cli.output import warn
from label_dp.errors import AlreadyReleased, BudgetExceeded, Conflict, InvalidInput
from label_dp.named_modules import installed
from label_dp.privacy import ZERO, EpsilonSplit
from label_dp.progress import Progress
from label_dp.store.idempotency import Reply
from labels_party.bootstrap import Services
from labels_party.labels.batch_uses import ACCEPTED, PUBLISHED, WORKING
from labels_party.labels.batches import Batch
from labels_party.labels.from_files import FileBatches, file_columns
from labels_party.labels.label_file import LabelFile
from labels_party.labels.seal import SameExamples
from labels_party.ledger.populations import NO_ERASURE, Population
from labels_party.ledger.rules import Account, judge
from labels_party.work.kind import RELEASES, Family, Work

ACTOR = "command line"


@dataclass(frozen=True)
class LabelsFile:
    """A file of labels that becomes a sealed batch of `population`; `examples` lists all of its ids, each of which
    begins with `id_prefix`."""

    path: Path | str
    id_column: str
    population: Population
    examples: Path | str | None = None
    id_prefix: str | None = None


Seal = Callable[[Population, str, Callable[[int], None], Progress], str]


class Errand(Protocol):
    """What is charged, what it needs beside labels, and where its result goes."""

    @property
    def elsewhere(self) -> str:
        """What to say where the same examples are a batch of another population."""

    def ready(self, services: Services, population: Population) -> None:
        """Read its own inputs, and refuse an output that cannot be written: before a batch is sealed for ever."""

    def check(self, population: Population, n: int) -> None:
        """Refuse for n examples whatever can be refused without labels; also before the seal."""

    def start(self, services: Services, batch: Batch, population: Population) -> str:
        """Charge it, or find what an interrupted run left charged; its id."""

    def deliver(self, services: Services, name: str, progress: Progress) -> dict[str, Any]:
        """Have it computed, write it out, and say what it is."""


def run(services: Services, of: str | LabelsFile, errand: Errand, progress: Progress) -> dict[str, Any]:
    """`of`: the id of a sealed batch, or a file of labels. Raises typed errors."""
    progress("reading", 0.02)
    if isinstance(of, str):
        batch, population = look(services, of)
        errand.ready(services, population)
        note = ""
    else:
        errand.ready(services, of.population)
        batch, population, note = _sealed(services, of, errand, progress)
    if beyond := batch.beyond(population):
        warn(beyond)
    result = errand.deliver(services, errand.start(services, batch, population), progress)
    services.sealer.compaction.wait()  # it would end with the process
    return result | ({"note": note} if note else {})


def _sealed(services: Services, given: LabelsFile, errand: Errand, progress: Progress) -> tuple[Batch, Population, str]:
    """The batch of a file of labels, or the one that has the same examples; what its owner should know of it."""
    files = FileBatches(services.populations, services.batches, services.sealer)
    seal = _here(files, given, errand) if services.cluster is None else _on_spark(services, files, given)
    population = services.database.read("population.look", lambda c: services.populations.declared(c, given.population))
    others = (
        ""
        if population.created
        else services.database.read("population.others", lambda c: services.populations.other_labels(c, population))
    )
    try:
        sealed_id = seal(population, ACTOR, lambda n: errand.check(population, n), progress)
    except SameExamples as same:
        sealed, owner = look(services, same.batch)
        if owner.id != population.id:
            raise Conflict(f"{same.detail} It belongs to population '{owner.name}': {errand.elsewhere}.") from None
        note = f"these examples were sealed at {sealed.sealed}; the labels of then were used, not this file's"
        return sealed, owner, note
    if not population.created and population.missing_label is None:
        warn(
            f"In the new population '{population.name}' {NO_ERASURE}. Its rules cannot change; "
            "--missing-label V gives another population such a value."
        )
    if others:
        warn(others)
    return (*look(services, sealed_id), "")


def _here(files: FileBatches, given: LabelsFile, errand: Errand) -> Seal:
    """By this process, of Parquet or CSV."""
    wanted = file_columns(given.population, given.id_column, given.population.label, listed=given.examples is not None)
    labels = LabelFile.open(Path(given.path), wanted["labels"])
    examples = None
    if given.examples is not None:
        examples = LabelFile.open(Path(given.examples), wanted["examples"], names_are_public=True)
    errand.check(given.population, (labels if examples is None else examples).rows or 1)
    prefix = given.id_prefix
    return lambda of, actor, check, told: files.seal(of, labels, examples, actor, check, told, prefix)


def _on_spark(services: Services, files: FileBatches, given: LabelsFile) -> Seal:
    """By tasks of its cluster, of Parquet on any store."""
    batches = installed("labels_party.spark.files").SparkBatches(services.cluster, files)
    labels = (str(given.path), given.id_column, given.population.label)
    examples = None if given.examples is None else (str(given.examples), given.id_column)
    prefix = given.id_prefix
    return lambda of, actor, check, told: batches.seal(of, labels, examples, actor, check, told, prefix)


def look(services: Services, batch_id: str) -> tuple[Batch, Population]:
    """Read a batch and its population. Raises NotFound."""
    return services.database.read("batch.look", lambda c: services.batches.get(c, batch_id))


def refuse_costly(population: Population, split: EpsilonSplit) -> None:
    """Refuse what even an untouched batch could not pay. Raises BudgetExceeded."""
    verdict = judge(Account(population.lifetime, ZERO, population.lifetime_delta), split)
    if isinstance(verdict, BudgetExceeded):
        raise verdict


def refuse_unnamed(population: Population, actor: str, what: str) -> None:
    """Raises InvalidInput where a second person approves, and nobody said who asks."""
    if population.four_eyes and actor == ACTOR:
        raise InvalidInput(f"In a four-eyes population say who asks for {what}: --as NAME.")


def still_unfinished(services: Services, batch_id: str, kind: str) -> list[Work]:
    """What an interrupted run left asked for, or charged."""
    works = services.database.read(f"{kind}.standing", lambda c: services.work.of_batch(c, batch_id, kind))
    return [work for work in works if work.state in (ACCEPTED, *WORKING)]


def charged(services: Services, batch_id: str, family: Family, ask: Callable[[], Reply]) -> str:
    """The id of what `ask` charged; a refused second one is told how the first is written once more."""
    try:
        return str(ask()[1]["id"])
    except AlreadyReleased as error:
        of = f"{family.noun}.standing"
        standing = services.database.read(of, lambda c: services.work.of_batch(c, batch_id))
        published = [w.id for w in standing if w.state == PUBLISHED and services.work.family(w) is family]
        if not published:
            raise
        raise AlreadyReleased(f"{error.detail} Once more, free of charge: {again(family, published[-1])}.") from None


def again(family: Family, name: str) -> str:
    """How what was published is written once more."""
    command = "message" if family is RELEASES else "answer"
    return f"labels-party {command} {name} --out FILE writes it"


def waits(services: Services, work: Work, out: Path) -> dict[str, Any]:
    """What is said of work that a second person has yet to approve."""
    population = services.database.read("work.look", lambda c: services.work.about(c, work))[1]
    command = "message" if services.work.family(work) is RELEASES else "answer"
    next_step = (
        f"nothing is charged yet: a second person runs  labels-party approve {work.id} --as NAME ; "
        f"then  labels-party {command} {work.id} --out {out}  writes the {command}"
    )
    told = {"batch": work.batch, "population": population.name, "state": work.state, "epsilon": work.epsilon}
    names = services.database.read("work.names", services.apikeys.names)
    return told | with_names({"requested_by": work.requested_by}, names) | {"next": next_step}


def finish(services: Services, work_id: str, family: Family, progress: Progress = lambda _what, _share: None) -> None:
    """Draw it here, or wait for the worker of a running service that took it. Raises NotFound, also for work of another
    family, of which nothing is drawn; and Conflict where it failed, or waits for a second person."""
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
