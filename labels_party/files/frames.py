"""A message from labels in a notebook: no service and no shell, with the ledger, keys and files of the commands."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa

from label_dp.columnar.frames import Frame, as_table
from label_dp.columnar.parts import TableParts, TablePath
from label_dp.documents.bundle import verify
from label_dp.documents.manifest import Manifest
from label_dp.documents.signing import VerifyingKey
from label_dp.domain import BINARY
from label_dp.errors import Conflict, InvalidInput
from label_dp.pages.verifier import write_statement
from label_dp.progress import Progress
from label_dp.schemas.json_types import JsonObject
from label_dp.schemas.plan import Plan
from label_dp.schemas.population import Population
from label_dp.schemas.release import Release
from label_dp.schemas.replies import PlanOut
from label_dp.schemas.validation import as_model
from label_dp.store.table_files import table_at
from labels_party.bootstrap import Services, bootstrap
from labels_party.files.inputs import population_of, request_of, undeclared_population
from labels_party.files.jobs import LabelsFile, run
from labels_party.files.message import Message
from labels_party.labels.file_sentences import Checked, FileOfLabels
from labels_party.labels.file_sentences import check as check_file
from labels_party.planning import question, undeclared

PathLike: TypeAlias = str | os.PathLike[str]
Number: TypeAlias = str | int | float | Decimal

OF_POPULATION, OF_RELEASE, OF_PLAN = (frozenset(schema.model_fields) for schema in (Population, Release, Plan))


@dataclass(frozen=True)
class PublishedMessage:
    """Signed, privatized message at `path`; a path itself, wherever one is taken. `key`: the public key that verifies
    it; `home`: the folder of the labels party that made it."""

    path: Path
    release: str
    key: Path
    home: Path

    def __fspath__(self) -> str:
        return str(self.path)

    @cached_property
    def manifest(self) -> Manifest:
        """Verified manifest: examples, domain, mechanism, ε, budget. Raises VerificationFailed kinds."""
        return verify(self.path, VerifyingKey.load(self.key), None).manifest

    def statement(self, out: PathLike | None = None, *, force: bool = False) -> str:
        """Return the two-page statement for a privacy officer, as HTML: what left, to whom, ε in words and numbers.

        `out`: a file for it, replaced only with `force`. Raises InvalidInput kinds."""
        with closing(_party(self.home, existing=True)) as party:
            page = party.statements.page(self.release, since=True)
        if out is not None:
            write_statement(page, Path(out), force=force)
        return page


def privatize(
    labels: Frame | PathLike,
    *,
    id: str,
    label: str,
    domain: str,
    epsilon: Number,
    budget: Number,
    population: str = "default",
    home: PathLike | None = None,
    out: PathLike | None = None,
    examples: Frame | PathLike | None = None,
    progress: Progress = lambda _what, _share: None,
    **options: Any,
) -> PublishedMessage:
    """Charge ε to the ledger of `home`, and draw one privatized label for every row of `labels`.

    `labels`: an Arrow, pandas or polars table, or the address of Parquet, CSV or a lake table, as for the command;
    `id`, `label`: its columns. `domain`: LO:HI[:STEP], class names with commas, or binary. `budget`: the lifetime ε of
    the population, which is declared by its first message. `examples`: all example ids, where some have no label.
    `home`: folder with keys, ledger and sealed labels (default: LABELS_PARTY_HOME, as for the commands). `out`: the
    message's new file (default: the population's name in this folder). `options`: as the options of `labels-party
    privatize`, by the names of REST, such as `missing_label`, `mechanism`, `prior`, `unit_column` or
    `additional_release`.

    Guarantee: ε-label-DP of the message, with what the population has spent before in the ledger. Raises the errors of
    the command: InvalidInput and its kinds, InvalidTable, InvalidRows, Refusal (beyond the budget, or released before),
    Conflict (waits for a second person).
    """
    _check(options, OF_POPULATION | OF_RELEASE)
    rules: JsonObject = {"name": population, "label": label, "domain": domain, "lifetime_epsilon": str(budget)}
    rules |= _members(options, OF_POPULATION)
    target = Path(f"{population}.message.parquet" if out is None else out).absolute()
    with closing(_party(home)) as party:
        owner_rules = population_of(as_model(rules, Population))
        release = as_model({"epsilon": str(epsilon)} | _members(options, OF_RELEASE), Release)
        work = Message(request_of(party, owner_rules, release), target, warned=_warned)
        file = LabelsFile(_source(labels), id, owner_rules, None if examples is None else _source(examples))
        result = run(party, file, work, progress, _warned)
        if "message" not in result:
            raise Conflict(f"Release '{result['release']}' waits for a second person: {result['next']}.")
        return PublishedMessage(target, str(result["release"]), Path(str(result["labels_key"])), party.home.path)


def check(
    labels: Frame | TablePath | str,
    *,
    id: str,
    label: str,
    domain: str | None = None,
    unit_column: str | None = None,
    max_examples_per_unit: int | None = None,
    examples: Frame | TablePath | str | None = None,
    missing_label: Any = None,
    out_of_domain: str | None = None,
) -> Checked:
    """Return why `privatize` would refuse the labels (`refused`), what else they look like (`says`), and a domain that
    fits them (`suggested`). Nothing is charged, stored or logged.

    Not private: the answer is made of raw labels, for their owner alone. Parameters are those of `privatize`; without a
    `domain` one is suggested. Raises InvalidInput and its kinds.
    """
    rules: JsonObject = {"name": "checked", "label": label, "domain": domain or BINARY, "lifetime_epsilon": "1"}
    rules |= {"missing_label": None if domain is None else missing_label, "out_of_domain": out_of_domain}
    rules |= {"unit_column": None if max_examples_per_unit is None else unit_column}
    owner = population_of(as_model(rules | {"max_examples_per_unit": max_examples_per_unit}, Population))
    return check_file(
        FileOfLabels(
            _table(labels),
            id,
            label,
            None if domain is None else owner.domain,
            unit_column,
            max_examples_per_unit,
            None if examples is None else _table(examples),
            missing_label,
            owner.out_of_domain,
        )
    )


def plan(
    *,
    epsilon: Number | Iterable[Number],
    n: int | None = None,
    population: str | None = None,
    domain: str | None = None,
    budget: Number | None = None,
    home: PathLike | None = None,
    **options: Any,
) -> PlanOut:
    """Return what each mechanism would give at each ε for `n` examples, and which to take. Charges nothing, reads no
    label.

    `population`: a declared one of `home`, judged under its newest published prior; or else `domain`, with a uniform
    prior. `options`: as those of `labels-party plan`. Raises InvalidInput and its kinds, NotFound.
    """
    _check(options, OF_PLAN)
    epsilons = [epsilon] if isinstance(epsilon, str | int | float | Decimal) else epsilon
    rows: JsonObject = {} if n is None else {"n": n}
    request = as_model({"epsilon": [str(one) for one in epsilons]} | rows | options, Plan)
    if domain is not None and population is None:
        lifetime = None if budget is None else str(budget)
        return undeclared(undeclared_population(domain, lifetime, request.epsilon), request).answer()
    if population is None or domain is not None or budget is not None:
        raise InvalidInput("Name a population, or the domain of one that is not declared yet, with its budget.")
    with closing(_party(home, existing=True)) as party:
        return question(party, population, request).answer()


def _check(options: Mapping[str, Any], names: frozenset[str]) -> None:
    strange = next((name for name in options if name not in names), None)
    if strange is not None:
        alike = get_close_matches(strange, names, 1)
        raise InvalidInput(f"There is no option '{strange}'." + (f" Did you mean '{alike[0]}'?" if alike else ""))


def _party(home: PathLike | None, *, existing: bool = False) -> Services:
    return bootstrap(existing=existing, chosen=None if home is None else {"home": Path(home).absolute()})


def _members(options: Mapping[str, Any], names: frozenset[str]) -> JsonObject:
    return {name: value for name, value in options.items() if name in names}


def _table(labels: Frame | TablePath | str) -> TablePath | pa.Table:
    if isinstance(labels, TableParts):
        return labels
    source = _source(labels)
    return table_at(source) if isinstance(source, str) else source


def _source(labels: Frame | PathLike) -> str | pa.Table:
    """Take a frame as a table; an address stays."""
    return os.fspath(labels) if isinstance(labels, str | os.PathLike) else as_table(labels)


def _warned(text: str) -> None:
    warnings.warn(text, stacklevel=2)
