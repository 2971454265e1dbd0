"""Check of events, in order, against the rules of `rulebook`: pure, without a store, a clock or a key.

A chain is checked from its first event on. A single event may be checked against a part of a chain with its
population's declaration, its batch's seal and purge, and all events of its release (`label_dp.audit.judged`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NoReturn

from label_dp.audit import events as kinds
from label_dp.audit import rulebook as rules
from label_dp.audit.ceilings import CeilingRules
from label_dp.audit.events import Event
from label_dp.audit.people_rules import PeopleRules
from label_dp.audit.received_rules import ReceivedRules
from label_dp.audit.rulebook import Rule, RuleBroken
from label_dp.documents.canonical import canonical_bytes
from label_dp.errors import InvalidEpsilon
from label_dp.privacy import ZERO, Delta, Epsilon, EpsilonSplit, PrivacyUnit

PRICED = kinds.CHARGES | {kinds.RETURNED}
# events without a unit
UNITLESS = frozenset({kinds.ERASURE_REQUESTED, kinds.ERASED, kinds.RECEIVED})
# for all audiences of the population; other kinds may be for some
FOR_ALL = frozenset({kinds.CHARGED, kinds.PUBLISHED})
# impossible after a purge
BEFORE_PURGE = frozenset(
    {
        *(kinds.REQUESTED, kinds.APPROVED, kinds.CHARGED, kinds.PUBLISHED, kinds.ANSWER_PUBLISHED),
        *(kinds.ALLOWANCE_SET, kinds.PREDICTOR_CREATED, kinds.BATCH_PURGED),
    }
)
# an erasure may be requested before anything is sealed
OF_POPULATION = frozenset({kinds.POPULATION_CREATED, kinds.ERASURE_REQUESTED})
WAITING, GRANTED, OPEN, RETURNABLE, ENDED = "waiting", "granted", "open", "returnable", "ended"
PER_UNIT = ("epsilon_per_unit", "delta_per_unit")
EFFECTS = ("before any release", "after a release", "labels were purged already")


@dataclass(frozen=True)
class DeclaredPopulation:
    """Declaration of a population; lifetimes in nano-ε and atto-δ."""

    name: str
    label: str
    unit: PrivacyUnit
    audiences: tuple[str, ...]
    lifetime: int
    lifetime_delta: int
    four_eyes: bool


@dataclass
class Sealed:
    """Sealed batch, with the ids of its unfinished and its published work."""

    population: str
    purged: bool
    unfinished: set[str]
    published: set[str]


@dataclass
class WorkAccount:
    """State of a release or an answer, and the events that requested, approved and charged it."""

    state: str
    batch: str | None
    asked: Event | None = None
    approver: str = ""
    charge: Event | None = None


@dataclass
class PredictorAccount:
    """Predictor: nano-ε per query, its cap, and what it has spent."""

    batch: str | None
    each: int
    cap: int
    spent: int = 0
    retired: bool = False


class ChainRules:
    """Rules of a chain; `add` takes the next event, or raises RuleBroken, after which the chain counts as broken.
    `spent`: nano-ε and atto-δ by batch."""

    def __init__(self) -> None:
        self.populations: dict[str, DeclaredPopulation] = {}
        self.batches: dict[str, Sealed] = {}
        self.works: dict[str, WorkAccount] = {}
        self.predictors: dict[str, PredictorAccount] = {}
        self.spent: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
        self.allowances: dict[tuple[str, str], int] = {}
        self.used: dict[tuple[str, str], int] = defaultdict(int)
        self.erasures: set[str] = set()
        self.received = ReceivedRules()
        self.people = PeopleRules(self.spent)
        self.ceilings = CeilingRules()
        self._first = True

    def add(self, event: Event) -> None:
        self.judge_start(event, first=self._first)
        self._first = False
        self.judge(event)

    @staticmethod
    def judge_start(event: Event, *, first: bool) -> None:
        if first != (event.kind == kinds.CREATED):
            _refuse(rules.BEGUN, event, "the store does not begin with it" if first else "the store had begun")

    def judge(self, event: Event) -> None:
        """Check an event of a part of a chain, otherwise as `add`."""
        _costs(event)
        if event.kind in ABOUT_POPULATION:
            self._about(event)
        handle = HANDLED.get(event.kind)
        if handle is not None:
            handle(self, event)
        elif event.kind in kinds.CHARGES:
            self.received.add(event)
        elif event.kind == kinds.KEY_HANDED_OVER:
            self.received.hand_over(event)
        elif event.kind == kinds.PEOPLE_DECLARED:
            self.people.declare(event)
        elif event.kind in (kinds.POLICY_PROPOSED, kinds.POLICY_APPLIED):
            self.ceilings.add(event)

    def _about(self, event: Event) -> None:
        subject = event.subject
        declared = self.populations.get(subject.population or "")
        if event.kind == kinds.POPULATION_CREATED:
            self._declare(event)
            return
        if declared is None:
            _refuse(rules.AS_DECLARED, event, "its population was not declared before")
        if (subject.population_name, subject.label) != (declared.name, declared.label):
            _refuse(rules.AS_DECLARED, event, "its population was declared with another name or label")
        if event.kind not in UNITLESS and event.unit != declared.unit:
            _refuse(rules.AS_DECLARED, event, "its population was declared with another unit")
        if not set(event.audiences) <= set(declared.audiences):
            _refuse(rules.AS_DECLARED, event, "its population was declared without one of its audiences")
        if event.kind in FOR_ALL and event.audiences != declared.audiences:
            _refuse(rules.AS_DECLARED, event, "it is not for all the audiences of its population")
        if event.kind not in OF_POPULATION:
            self._of_batch(event)

    def _declare(self, event: Event) -> None:
        subject, details = event.subject, event.details
        if not (subject.population and subject.population_name and subject.label and event.audiences):
            _refuse(rules.DECLARED, event, "it does not say what it declares")
        four_eyes = details.get("four_eyes", False)
        try:
            lifetime = Epsilon.canonical(details.get("lifetime_epsilon")).nano
            # populations of before there was a lifetime δ do not name one: they took pure ε-DP only
            delta = Delta.canonical(details.get("lifetime_delta", "0")).atto
        except InvalidEpsilon:
            _refuse(rules.DECLARED, event, "its lifetime ε or δ is no canonical number")
        if not isinstance(four_eyes, bool):
            _refuse(rules.DECLARED, event, "it does not say whether it has four eyes")
        names = {declared.name for declared in self.populations.values()}
        if subject.population in self.populations or subject.population_name in names:
            _refuse(rules.DECLARED, event, "its id or its name was declared before")
        self.populations[subject.population] = DeclaredPopulation(
            subject.population_name, subject.label, event.unit, event.audiences, lifetime, delta, four_eyes
        )
        self.people.join(event)

    def _of_batch(self, event: Event) -> None:
        name, population = event.subject.batch, event.subject.population
        batch = self.batches.get(name or "")
        if event.kind == kinds.BATCH_SEALED:
            if not name or batch is not None:
                _refuse(rules.SEALED, event, "its batch was sealed before")
            self.batches[name] = Sealed(str(population), False, set(), set())
            self.people.seal(event)
            return
        if batch is None or batch.population != population:
            _refuse(rules.SEALED, event, "its batch was not sealed before, or in another population")
        if batch.purged and event.kind in BEFORE_PURGE:
            _refuse(rules.PURGED, event, "its batch was purged before")

    def _purged(self, event: Event) -> None:
        batch = self.batches[str(event.subject.batch)]
        if batch.unfinished:
            _refuse(rules.PURGED, event, "something of the batch is asked for or charged, and unfinished")
        batch.purged = True

    def _erasure(self, event: Event) -> None:
        self.erasures.add(str(event.subject.population))

    def _erased(self, event: Event) -> None:
        batch, published = self.batches[str(event.subject.batch)], event.details.get("published")
        if event.subject.population not in self.erasures:
            _refuse(rules.ERASED, event, "nobody had asked for it")
        if not isinstance(published, list) or not all(isinstance(one, str) for one in published):
            _refuse(rules.ERASED, event, "it does not tell what was published of the batch")
        if len(published) != len(batch.published) or set(published) != batch.published:
            _refuse(rules.ERASED, event, "it does not tell what was published of the batch")
        if event.details.get("effect") != EFFECTS[2 if batch.purged else 1 if published else 0]:
            _refuse(rules.ERASED, event, "its effect is another")

    def _requested(self, event: Event) -> None:
        name = event.subject.work
        if not name or name in self.works:
            _refuse(rules.CHARGED_ONCE, event, "it was asked for or charged before")
        self.works[name] = WorkAccount(WAITING, event.subject.batch, asked=event)
        self._unfinished(event).add(name)

    def _decided(self, event: Event) -> None:
        work = self._work(event)
        if work is None or work.state != WAITING or work.asked is None:
            _refuse(rules.APPROVED, event, "its release does not wait for it")
        if event.kind == kinds.DECLINED:
            self._end(event, work)
            return
        asker = work.asked.actor
        if event.details.get("requested_by") != asker or event.actor.casefold() == asker.casefold():
            _refuse(rules.APPROVED, event, "who asked for it approved it, or somebody else had asked")
        work.state, work.approver = GRANTED, event.actor

    def _charged(self, event: Event) -> None:
        name, batch, details = event.subject.work, str(event.subject.batch), event.details
        population = self.populations[str(event.subject.population)]
        work = self.works.get(name or "")
        if not name or (work is not None and work.state not in (WAITING, GRANTED)):
            _refuse(rules.CHARGED_ONCE, event, "it was charged before, or ended without")
        if work is not None or population.four_eyes:
            self._as_approved(event, work)
        nano, atto = self.spent[batch]
        nano, atto = nano + event.split.total.nano, atto + event.split.delta_atto
        if nano > population.lifetime or atto > population.lifetime_delta:
            _refuse(rules.LIFETIME, event, "the batch is charged beyond its lifetime ε or δ")
        if "predictor" in details:
            self._query(event)
        if details.get("by_audience") is not None:
            self._by_audience(event)
        self.spent[batch] = nano, atto
        self.people.charge(event)
        self.ceilings.charge(event, self.people, self.spent[batch], approved=work is not None)
        self.works[name] = WorkAccount(OPEN, batch, charge=event)
        self._unfinished(event).add(name)

    @staticmethod
    def _as_approved(event: Event, work: WorkAccount | None) -> None:
        if work is None or work.state != GRANTED or work.asked is None or work.batch != event.subject.batch:
            _refuse(rules.FOUR_EYES, event, "it was charged without an approval")
        if work.approver != event.actor:
            _refuse(rules.FOUR_EYES, event, "somebody else than who approved it charged it")
        request = dict(work.asked.details)
        charge = {name: value for name, value in event.details.items() if name not in PER_UNIT}
        if request.pop("epsilon", None) != event.split.as_json() or canonical_bytes(request) != canonical_bytes(charge):
            _refuse(rules.FOUR_EYES, event, "another release was charged than was asked for")

    def _cancelled(self, event: Event) -> None:
        work = self._work(event)
        states = {WAITING: "accepted", OPEN: "charged"}
        if work is None or work.state not in states or event.details.get("state") != states[work.state]:
            _refuse(rules.RETURNED, event, "a release is cancelled that neither waits nor has an open charge")
        if work.state == OPEN:
            work.state = RETURNABLE
        else:
            self._end(event, work)

    def _returned(self, event: Event) -> None:
        work = self._work(event)
        if work is None or work.charge is None or work.state != RETURNABLE:
            _refuse(rules.RETURNED, event, "a charge is returned that is not open, or whose release was not cancelled")
        if work.charge.split != event.split:
            _refuse(rules.RETURNED, event, "another ε is returned than was charged")
        batch = str(event.subject.batch)
        nano, atto = self.spent[batch]
        self.spent[batch] = nano - event.split.total.nano, atto - event.split.delta_atto
        self.people.give_back(str(event.subject.population))
        self._end(event, work)

    def _ended(self, event: Event) -> None:
        """End a work that was published or failed."""
        work = self._work(event)
        if work is None or work.charge is None or work.state != OPEN:
            _refuse(rules.PUBLISHED, event, "it has no open charge")
        answer = (details := work.charge.details).get("answer")
        is_release = event.kind in (kinds.PUBLISHED, kinds.FAILED)
        if (answer is None) != is_release or canonical_bytes(event.details.get("answer")) != canonical_bytes(answer):
            _refuse(rules.PUBLISHED, event, "it was charged as something else")
        if event.kind in (kinds.PUBLISHED, kinds.ANSWER_PUBLISHED):
            if not event.audiences and "predictor" not in details:  # the owner may ask one alone
                _refuse(rules.PUBLISHED, event, "it is published for nobody")
            if "lost" in details or ("restored" in details and "restored" not in event.details):
                _refuse(rules.PUBLISHED, event, "a restore charged it again, for what was published before")
            self.batches[str(event.subject.batch)].published.add(str(event.subject.work))
        self._end(event, work)

    def _shared(self, event: Event) -> None:
        published, work = self.batches[str(event.subject.batch)].published, self._work(event)
        charge = None if event.subject.work not in published or work is None else work.charge
        if charge is None or charge.details.get("answer") is None or not event.audiences:
            _refuse(rules.PUBLISHED, event, "an answer is shown that was not published, or to nobody")

    def _work(self, event: Event) -> WorkAccount | None:
        """Return the release or answer of an event, if it is of the event's batch."""
        work = self.works.get(event.subject.work or "")
        return work if work is not None and work.batch == event.subject.batch else None

    def _unfinished(self, event: Event) -> set[str]:
        return self.batches[str(event.subject.batch)].unfinished

    def _end(self, event: Event, work: WorkAccount) -> None:
        work.state = ENDED
        self._unfinished(event).discard(str(event.subject.work))

    def _predictor(self, event: Event) -> None:
        name, plan = event.subject.work, event.details.get("plan")
        plan = plan if isinstance(plan, Mapping) else {}
        if not name or name in self.predictors or event.details.get("predictor") != name:
            _refuse(rules.QUERIES, event, "it was made before")
        try:
            each, cap = (Epsilon.canonical(plan.get(what)).nano for what in ("epsilon_per_query", "epsilon_cap"))
        except InvalidEpsilon:
            _refuse(rules.QUERIES, event, "it does not say what its queries charge")
        self.predictors[name] = PredictorAccount(event.subject.batch, each, cap)

    def _retired(self, event: Event) -> None:
        predictor = self.predictors.get(event.subject.work or "")
        if predictor is None or predictor.retired or predictor.batch != event.subject.batch:
            _refuse(rules.QUERIES, event, "it was not made, or retired before")
        predictor.retired = True

    def _query(self, event: Event) -> None:
        name = event.details["predictor"]
        predictor = self.predictors.get(name) if isinstance(name, str) else None
        if predictor is None or predictor.retired or predictor.batch != event.subject.batch:
            _refuse(rules.QUERIES, event, "its predictor was not made, or retired")
        predictor.spent += predictor.each
        if event.split != EpsilonSplit(ZERO, ZERO, Epsilon(predictor.each)) or predictor.spent > predictor.cap:
            _refuse(rules.QUERIES, event, "it charges something else than a query, or is beyond the cap")

    def _allowance(self, event: Event) -> None:
        kind = event.details.get("answer")
        try:
            nano = Epsilon.canonical(event.details.get("epsilon")).nano
        except InvalidEpsilon:
            _refuse(rules.ALLOWED, event, "what it allows is no canonical number")
        if not isinstance(kind, str):
            _refuse(rules.ALLOWED, event, "it does not say what for")
        self.allowances[str(event.subject.batch), kind] = nano

    def _by_audience(self, event: Event) -> None:
        kind, audience = event.details.get("answer"), event.details["by_audience"]
        place = str(event.subject.batch), str(kind)
        self.used[place] += event.split.total.nano
        if audience not in event.audiences or not isinstance(kind, str):
            _refuse(rules.ALLOWED, event, "it was asked for by nobody who may")
        if self.used[place] > self.allowances.get(place, 0):
            _refuse(rules.ALLOWED, event, "audiences charge more than the owner allowed")


HANDLED: dict[str, Callable[[ChainRules, Event], None]] = {
    kinds.BATCH_PURGED: ChainRules._purged,
    kinds.ERASURE_REQUESTED: ChainRules._erasure,
    kinds.ERASED: ChainRules._erased,
    kinds.REQUESTED: ChainRules._requested,
    kinds.APPROVED: ChainRules._decided,
    kinds.DECLINED: ChainRules._decided,
    kinds.CANCELLED: ChainRules._cancelled,
    kinds.CHARGED: ChainRules._charged,
    kinds.RETURNED: ChainRules._returned,
    kinds.PUBLISHED: ChainRules._ended,
    kinds.FAILED: ChainRules._ended,
    kinds.ANSWER_PUBLISHED: ChainRules._ended,
    kinds.ANSWER_FAILED: ChainRules._ended,
    kinds.ANSWER_SHARED: ChainRules._shared,
    kinds.PREDICTOR_CREATED: ChainRules._predictor,
    kinds.PREDICTOR_RETIRED: ChainRules._retired,
    kinds.ALLOWANCE_SET: ChainRules._allowance,
}
ABOUT_POPULATION = {*HANDLED, kinds.POPULATION_CREATED, kinds.BATCH_SEALED, kinds.BUDGET_ALERT, kinds.RECEIVED}


def check_rules(chain: Iterable[Event]) -> None:
    """Check a whole chain. Raises RuleBroken for the first event that breaks a rule."""
    rules_ = ChainRules()
    for event in chain:
        rules_.add(event)


def _costs(event: Event) -> None:
    nano, atto = event.split.total.nano, event.split.delta_atto
    if (event.kind in PRICED) != (nano > 0) or (atto and event.kind not in PRICED):
        _refuse(rules.COSTS, event, "it carries a charge that its kind does not have, or none where there is one")


def _refuse(rule: Rule, event: Event, why: str) -> NoReturn:
    raise RuleBroken(rule, event.sequence, why)
