"""Audit events for people and programs: one sentence per event, filters, totals per population and batch."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from sqlalchemy.engine import Connection

from label_dp.actors import called, name_of
from label_dp.audit import events as kinds
from label_dp.audit.ceilings import Ceilings
from label_dp.audit.events import DAY, Event
from label_dp.audit.hand_overs import hand_over_of
from label_dp.audit.store import PAGE, AuditStore
from label_dp.documents.hand_over import KeyFamilies
from label_dp.errors import InvalidEpsilon, InvalidInput
from label_dp.privacy import Epsilon, PrivacyUnit, delta_string, parse_delta
from label_dp.schemas.json_types import JsonObject

NOBODY: Mapping[str, str] = MappingProxyType({})  # no key has a name
SINCE = re.compile(r"\d{4}-\d{2}-\d{2}(T\d{2}:\d{2}:\d{2}Z)?", re.ASCII)


@dataclass(frozen=True)
class EventFilter:
    """Filter of events by ids, not names. `since` is a day or a time (UTC). Raises InvalidInput. `exact`: the caller
    may know more of a time than its day; a finer `since` would reveal it."""

    population: str | None = None
    work: str | None = None
    batch: str | None = None
    kind: str | None = None
    since: str | None = None
    exact: bool = True

    def __post_init__(self) -> None:
        if self.since is not None and not _is_day(self.since):
            raise InvalidInput("'since' is a day such as 2026-11-20, or a time such as 2026-11-20T12:00:00Z, in UTC.")
        if not all(value is None or value.isprintable() for value in self.columns.values()):
            raise InvalidInput("A filter of audit events is a printable id or kind.")
        if self.kind is not None and self.kind not in kinds.KINDS:
            raise InvalidInput(f"There is no kind of event '{self.kind}'; there are {', '.join(kinds.KINDS)}.")

    @property
    def columns(self) -> dict[str, str]:
        values = {name: getattr(self, name) for name in ("population", "work", "batch", "kind")}
        return {name: value for name, value in values.items() if value is not None}

    def select(
        self, store: AuditStore, connection: Connection, *, after: int = 0, limit: int | None = None
    ) -> Iterator[Event]:
        """Yield events in order, read a page at a time, so that a long history takes no memory."""
        remaining = limit
        since = self.since if self.since is None or self.exact else self.since[:DAY]
        while remaining is None or remaining > 0:
            page = store.events(connection, after=after, limit=PAGE, **self.columns)
            for event in page:
                if since is None or (event.moment if self.exact else event.time) >= since:
                    yield event
                    remaining = None if remaining is None else remaining - 1
                    if remaining == 0:
                        return
            if len(page) < PAGE:
                return
            after = page[-1].sequence


def _is_day(text: str) -> bool:
    try:
        return SINCE.fullmatch(text) is not None and bool(dt.datetime.fromisoformat(text))
    except ValueError:
        return False


def counted(count: object, what: str) -> str:
    """Format a count with its noun, in the plural if need be."""
    number = f"{count:,}" if isinstance(count, int) else count
    return f"{number} {what}" if count == 1 else f"{number} {what}s"


def plain(value: object) -> str:
    """Return one printable line of untrusted text: nothing in it moves a terminal's cursor."""
    return "".join(c if c.isprintable() else f"[U+{ord(c):04X}]" for c in str(value))


def split_words(event: Event) -> str:
    """Format `ε 1 = 0.005 prior + 0.995 randomize`, and δ if it is not 0."""
    parts = [(event.split.clip, "clip"), (event.split.prior, "prior"), (event.split.randomize, "randomize")]
    used = [f"{part} {name}" for part, name in parts if part]
    delta = f" and δ {delta_string(event.split.delta_atto)}" if event.split.delta_atto else ""
    return f"ε {event.split.total}" + (f" = {' + '.join(used)}" if len(used) > 1 else "") + delta


def _told(event: Event, names: Mapping[str, str]) -> str:
    subject, details = event.subject, event.details
    batch, work = f"batch {subject.batch}", _called(event)
    sentences: dict[str, Callable[[], str]] = {
        kinds.CREATED: lambda: f"audit store {event.store} of the {event.party} was created",
        kinds.POPULATION_CREATED: lambda: (
            f"population {subject.population_name} was declared: label {subject.label}, lifetime ε "
            f"{details.get('lifetime_epsilon')}{_lifetime_delta(details)} per example, for {', '.join(event.audiences)}"
        ),
        kinds.PEOPLE_DECLARED: lambda: (
            f"the body of people {details.get('name')} was declared: lifetime ε {details.get('lifetime_epsilon')}"
            f"{_lifetime_delta(details)} of one {details.get('unit_column') or 'example'} over all its populations"
        ),
        kinds.POLICY_PROPOSED: lambda: (
            f"policy {_policy(details)} was proposed, which is looser than the one in force; nothing changes before "
            "somebody else applies it"
        ),
        kinds.POLICY_APPLIED: lambda: (
            f"policy {_policy(details)} holds for every later charge"
            + (f"; proposed by {called(str(details['proposed_by']), names)}" if details.get("proposed_by") else "")
        ),
        kinds.BATCH_SEALED: lambda: (
            f"{batch} was sealed with {counted(details.get('n', '?'), 'example')}{_versions(details)}"
        ),
        kinds.REQUESTED: lambda: (
            f"{work} of {batch} was asked for (ε {_total(details)}); nothing is charged until somebody else approves"
        ),
        kinds.APPROVED: lambda: (
            f"{work} of {batch} was approved; {called(str(details.get('requested_by')), names)} had asked for it"
        ),
        kinds.DECLINED: lambda: (
            f"{work} of {batch} was declined"
            + (f": {details['reason']}" if details.get("reason") else "")
            + "; nothing was charged"
        ),
        kinds.CANCELLED: lambda: f"{work} of {batch} was cancelled before any draw began",
        kinds.CHARGED: lambda: f"{work} charged {split_words(event)} to {batch}",
        kinds.RETURNED: lambda: f"{work} returned {split_words(event)} to {batch}: no draw had begun",
        kinds.PUBLISHED: lambda: f"{work} of {batch} was published for {', '.join(event.audiences)}",
        kinds.FAILED: lambda: f"{work} of {batch} failed ({details.get('code')}); its charge is kept",
        kinds.BUDGET_ALERT: lambda: (
            f"{batch} has spent {details.get('spent')} of its lifetime ε {details.get('lifetime')}: "
            f"the alert at {details.get('percent')} % was reached by {work}"
        ),
        kinds.BATCH_PURGED: lambda: f"the labels of {batch} were deleted ({details.get('why')}); its releases stay",
        kinds.ERASURE_REQUESTED: lambda: (
            f"erasure of {_erased(details)} of population {subject.population_name} was asked for"
        ),
        kinds.ERASED: lambda: (
            f"{counted(details.get('examples'), 'example')} of {batch} took the missing-label value"
            + (
                f"; {counted(len(details['published']), 'published release')} cannot be recalled"
                if details.get("published")
                else ""
            )
        ),
        kinds.ACCEPTED: lambda: (
            f"{work} of {batch} was accepted and adds {split_words(event)} (population {subject.population_name})"
        ),
        kinds.SECOND_REFUSED: lambda: (
            f"another document of {work} was refused, though its labels party had signed it; its SHA-256 is "
            f"{details.get('refused')}"
        ),
        kinds.DOCUMENT_REFUSED: lambda: (
            f"{work} of {batch} was refused, though its labels party had signed it: with what was accepted "
            f"before it breaks rule {details.get('rule')} (it states ε {details.get('epsilon_spent')} as spent); its "
            f"SHA-256 is {details.get('refused')}"
        ),
        kinds.RECEIPT_KEY: lambda: (
            f"receipts of {', '.join(event.audiences)} are signed with the key {details.get('key_id')}"
        ),
        kinds.RECEIVED: lambda: (
            f"{', '.join(event.audiences)} acknowledged {work} with its receipt {details.get('position')}"
        ),
        kinds.ANSWER_PUBLISHED: lambda: f"{work} of {batch} was published for {', '.join(event.audiences)}",
        kinds.ANSWER_SHARED: lambda: f"{work} of {batch} was given to {', '.join(event.audiences)} too, at no charge",
        kinds.ANSWER_FAILED: lambda: f"{work} of {batch} failed ({details.get('code')}); its charge is kept",
        kinds.ANSWER_ACCEPTED: lambda: (
            f"{work} of {batch} was accepted and adds {split_words(event)} (population {subject.population_name})"
        ),
        kinds.ALLOWANCE_SET: lambda: (
            f"audiences may charge {batch} up to ε {details.get('epsilon')} by answers of kind {details.get('answer')}"
        ),
        kinds.PREDICTOR_CREATED: lambda: f"predictor {details.get('predictor')} of {batch} was made; {_cap(details)}",
        kinds.PREDICTOR_RETIRED: lambda: f"predictor {details.get('predictor')} of {batch} was retired by its owner",
        kinds.KEY_HANDED_OVER: lambda: (
            f"the signing key {details.get('old_key_id')} handed over to {details.get('new_key_id')}, which is of the "
            "same labels party"
        ),
        kinds.TRAINED: lambda: f"model.json {details.get('model_sha256')} was trained on {details.get('releases')}",
    }
    return sentences.get(event.kind, lambda: f"{event.kind} {subject.work or subject.batch or ''}")()


def _erased(details: Any) -> str:
    """Describe the scope of an erasure: examples, or all examples of units."""
    if "units" in details:
        return f"all examples of {counted(details['units'], 'unit')}"
    return counted(details.get("examples"), "example")


VERSIONED = {"table", "snapshot"}


def _versions(details: Mapping[str, Any]) -> str:
    """Say which versions of lake tables a batch was read of."""
    tables = details.get("tables")
    sources = tables.items() if isinstance(tables, dict) else ()
    since = {name: f"{of['since']}.." if "since" in of else "" for name, of in sources}
    return "".join(f"; {n} of {of['table']} at {since[n]}{of['snapshot']}" for n, of in sources if {*of} >= VERSIONED)


def _called(event: Event) -> str:
    """Format `release rel_1`, or another kind of work: `calibration ans_1`."""
    work = str(event.subject.work)
    noun = "answer" if work.startswith("ans_") else "release"  # not every event names the kind
    return f"{event.details.get('answer', noun)} {work}"


def _policy(details: Any) -> str:
    name = str(details.get("policy"))[:12]
    try:
        return f"{name}… ({Ceilings.read(details.get('ceilings'))})"
    except InvalidEpsilon:
        return f"{name}…"


def _lifetime_delta(details: Any) -> str:
    declared = details.get("lifetime_delta", "0")
    return "" if declared == "0" else f" and δ {declared}"


def _cap(details: Any) -> str:
    plan = details.get("plan")
    each, cap = (plan.get(f"epsilon_{name}", "?") if isinstance(plan, dict) else "?" for name in ("per_query", "cap"))
    return f"a query charges ε {each}, and all together at most {cap}"


def _total(details: Any) -> str:
    split = details.get("epsilon")
    return str(split.get("total", "?")) if isinstance(split, dict) else "?"


def sentence(event: Event, names: Mapping[str, str] = NOBODY) -> str:
    """Describe an event in one line for people. `names`: of API keys, by actor."""
    by = f", by {called(event.actor, names)}" if event.actor else ""
    return plain(f"{_told(event, names)}{by}.")


def describe(event: Event, *, exact: bool, names: Mapping[str, str] = NOBODY) -> JsonObject:
    """Describe an event as JSON: ε as decimal strings, its actor, and the sentence. `exact`: for the store's owner,
    with the second as `at`."""
    members = event.as_json() | {"epsilon": event.split.as_json(), "sentence": sentence(event, names)}
    members |= {"actor_name": name_of(event.actor, names)}
    return members | ({"at": event.moment} if exact else {})


@dataclass
class Total:
    """Sum of one batch's charges: ε and δ spent per example, and their number."""

    population: str
    population_name: str
    batch: str
    charges: int = 0
    nano: int = 0
    lifetime_nano: int | None = None
    atto: int = 0
    lifetime_atto: int | None = None

    def as_json(self) -> JsonObject:
        lifetime = None if self.lifetime_nano is None else str(Epsilon(self.lifetime_nano))
        return {
            "population": self.population,
            "population_name": self.population_name,
            "batch": self.batch,
            "charges": self.charges,
            "epsilon_spent": str(Epsilon(max(self.nano, 0))),
            "epsilon_lifetime": lifetime,
            "delta_spent": delta_string(max(self.atto, 0)),
            "delta_lifetime": None if self.lifetime_atto is None else delta_string(self.lifetime_atto),
        }


class Totals:
    """Sums of charges, event by event; a population's figure per example is its largest batch's."""

    def __init__(self) -> None:
        self.batches: dict[tuple[str, str, str], Total] = {}
        self.lifetimes: dict[str, int] = {}
        self.deltas: dict[str, int] = {}
        self.units: dict[tuple[str, str], PrivacyUnit] = {}
        self.families = KeyFamilies()

    def add(self, event: Event) -> Total | None:
        """Add an event; returns the total that it changed, if any."""
        subject = event.subject
        if event.kind == kinds.POPULATION_CREATED and isinstance(event.details.get("lifetime_epsilon"), str):
            self.lifetimes[str(subject.population)] = Epsilon.parse(event.details["lifetime_epsilon"]).nano
            # populations of before there was a lifetime δ do not name one: they took pure ε-DP only
            self.deltas[str(subject.population)] = parse_delta(event.details.get("lifetime_delta", "0"))
        if event.kind == kinds.KEY_HANDED_OVER:
            self.families.add(hand_over_of(event))
        if event.kind in kinds.CHARGES or event.kind == kinds.RETURNED:
            # population ids are one labels party's; two of them may both have a pop_1
            key = (self.families.of(str(event.details.get("key_id", ""))), str(subject.population), str(subject.batch))
            total = self.batches.setdefault(
                key, Total(str(subject.population), str(subject.population_name), str(subject.batch))
            )
            total.lifetime_nano = self.lifetimes.get(str(subject.population))
            total.lifetime_atto = self.deltas.get(str(subject.population))
            if "epsilon_lifetime" in event.details:  # another party's population: every document states it
                total.lifetime_nano = event.account.lifetime.nano
                total.lifetime_atto = event.account.lifetime_delta.atto
            self.units[key[:2]] = event.unit
            back = event.kind == kinds.RETURNED
            total.charges += 0 if back else 1
            total.nano += -event.split.total.nano if back else event.split.total.nano
            total.atto += -event.split.delta_atto if back else event.split.delta_atto
            return total
        return None

    def as_json(self) -> list[dict[str, Any]]:
        return [total.as_json() for total in self.batches.values()]

    def populations(self) -> list[dict[str, Any]]:
        """Return ε spent of each population: the largest of an example, and its bound for a unit."""
        largest: dict[tuple[str, str], Total] = {}
        for (key, population, _), total in self.batches.items():
            most = largest.setdefault((key, population), total)
            if total.nano > most.nano:
                largest[key, population] = total
        rows = []
        for of, total in largest.items():
            spent, unit = Epsilon(max(total.nano, 0)), self.units[of]
            row = {name: value for name, value in total.as_json().items() if name not in ("batch", "charges")}
            rows.append(row | {"unit": unit.as_json(), "epsilon_per_unit": unit.bound(spent)})
        return rows
