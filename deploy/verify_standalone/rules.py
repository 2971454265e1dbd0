"""The numbered rules of an audit chain, as its description states them: what events may follow which."""

from __future__ import annotations

from typing import Any, NoReturn

from .ceilings import Policies
from .envelope import canonical_bytes
from .exact import ATTO, DECIMAL, NANO, decimal, units
from .people import PeopleCap
from .received import ReceivedRules
from .refusal import RuleError

# numbers and names of the description
NAMES = {
    1: "begun",
    2: "costs",
    3: "declared",
    4: "as-declared",
    5: "sealed",
    6: "purged",
    7: "charged-once",
    8: "lifetime",
    9: "approved",
    10: "four-eyes",
    11: "returned",
    12: "published",
    13: "queries",
    14: "allowed",
    15: "erased",
    16: "accepted-once",
    17: "same-declaration",
    18: "stated",
    20: "handed-over",
    21: "people",
    22: "ceilings",
}
ACCEPTED = ("message-accepted", "answer-accepted")
PRICED = ("release-charged", "charge-returned", *ACCEPTED)
OF_RELEASES = (
    *("release-requested", "release-approved", "release-declined", "release-cancelled", "release-charged"),
    *("release-published", "release-failed", "charge-returned", "answer-published", "answer-failed"),
)
OF_BATCHES = (
    *OF_RELEASES,
    *("batch-sealed", "batch-purged", "label-erased", "budget-alert", "receipt-received"),
    *("allowance-set", "predictor-created", "predictor-retired", "answer-shared"),
)
OF_POPULATIONS = (*OF_BATCHES, "population-created", "erasure-requested")
WITHOUT_UNIT = ("erasure-requested", "label-erased", "receipt-received")
NOT_AFTER_PURGE = (
    *("release-requested", "release-approved", "release-charged", "release-published", "answer-published"),
    *("allowance-set", "predictor-created", "batch-purged"),
)


def broken(rule: int, number: int, why: str) -> NoReturn:
    """Raise RuleError for event `number`."""
    raise RuleError(rule, NAMES[rule], number, why)


def amount(text: object, scale: int = NANO) -> int | None:
    """A canonical ε (at most a million) or δ (at most 1) in its smallest units; None for anything else."""
    if not isinstance(text, str) or len(text) > 60 or DECIMAL.fullmatch(text) is None:
        return None
    if "." in text and len(text.split(".")[1]) > len(str(scale)) - 1:
        return None
    count = units(text, scale, "a number")
    return count if count <= (1_000_000 * NANO if scale == NANO else ATTO) else None


class Rules:
    """`add` takes the events one by one; `spent` is (ε, δ) by population and batch, in smallest units."""

    def __init__(self) -> None:
        self.populations: dict[str, dict[str, Any]] = {}
        self.batches: dict[str, dict[str, Any]] = {}
        self.works: dict[str, dict[str, Any]] = {}
        self.predictors: dict[str, dict[str, Any]] = {}
        self.spent: dict[tuple[str, str], tuple[int, int]] = {}
        self.allowed: dict[tuple[str, str], int] = {}
        self.used: dict[tuple[str, str], int] = {}
        self.to_erase: set[str] = set()
        self.received = ReceivedRules()
        self.people = PeopleCap(self.spent)
        self.policies = Policies()

    def add(self, number: int, event: Any) -> None:
        kind = event["kind"]
        if (number == 1) != (kind == "store-created"):
            broken(1, number, "a store begins with its creation, once")
        total, delta = event["epsilon_nano"]["total"], units(event["delta"], ATTO, "δ")
        if (kind in PRICED) != (total > 0) or (delta and kind not in PRICED):
            broken(2, number, "ε or δ stands where none is charged, or none where something is")
        if kind == "population-created":
            self._declare(number, event)
        elif kind in OF_POPULATIONS:
            self._as_declared(number, event)
        if kind in OF_BATCHES:
            self._batch(number, event)
        self._by_kind(number, event)

    def _by_kind(self, number: int, event: Any) -> None:
        kind, subject, details = event["kind"], event["subject"], event["details"]
        if kind == "batch-purged":
            if self.batches[subject["batch"]]["unfinished"]:
                broken(6, number, "something of the batch is unfinished")
            self.batches[subject["batch"]]["purged"] = True
        elif kind == "erasure-requested":
            self.to_erase.add(subject["population"])
        elif kind == "label-erased":
            self._erased(number, subject, details)
        elif kind in OF_RELEASES:
            self._release(number, event, kind)
        elif kind.startswith("predictor-") and kind in OF_BATCHES:
            self._predictor(number, subject, details, kind)
        elif kind == "answer-shared":
            published = subject["work"] in self.batches[subject["batch"]]["published"] and event["audiences"]
            if not published or self.works[subject["work"]]["charge"]["details"].get("answer") is None:
                broken(12, number, "an answer is shown that was not published, or to nobody")
        elif kind == "allowance-set":
            most, of = amount(details.get("epsilon")), details.get("answer")
            if most is None or not isinstance(of, str):
                broken(14, number, "it does not say what is allowed")
            self.allowed[subject["batch"], of] = most
        elif kind in ACCEPTED:
            found = self.received.add(event, amount)
            if found is not None:
                broken(*found[:1], number, found[1])
        elif kind == "key-handed-over":
            why = self.received.hand_over(details)
            if why is not None:
                broken(20, number, why)
        elif kind == "people-declared":
            self._people(number, self.people.declare(details, amount))
        elif kind in ("policy-proposed", "policy-applied"):
            take = self.policies.propose if kind == "policy-proposed" else self.policies.apply
            self._ceilings(number, take(event, amount))

    @staticmethod
    def _ceilings(number: int, why: str | None) -> None:
        if why is not None:
            broken(22, number, why)

    @staticmethod
    def _people(number: int, why: str | None) -> None:
        if why is not None:
            broken(21, number, why)

    def _declare(self, number: int, event: Any) -> None:
        subject, details = event["subject"], event["details"]
        life = amount(details.get("lifetime_epsilon"))
        life_delta = amount(details.get("lifetime_delta", "0"), ATTO)
        name, label, four_eyes = subject["population_name"], subject["label"], details.get("four_eyes", False)
        said = subject["population"] and name and label and event["audiences"]
        if not said or life is None or life_delta is None or not isinstance(four_eyes, bool):
            broken(3, number, "it does not say what it declares")
        if subject["population"] in self.populations or name in {p["name"] for p in self.populations.values()}:
            broken(3, number, "a population is declared twice")
        told = {"name": name, "label": label, "unit": event["unit"], "audiences": event["audiences"]}
        self.populations[subject["population"]] = told | {"life": life, "delta": life_delta, "four eyes": four_eyes}
        self._people(number, self.people.join(subject["population"], details.get("people"), event["unit"]))

    def _as_declared(self, number: int, event: Any) -> None:
        subject, kind = event["subject"], event["kind"]
        known = self.populations.get(subject["population"])
        if known is None or (subject["population_name"], subject["label"]) != (known["name"], known["label"]):
            broken(4, number, "its population was not declared, or with another name or label")
        if kind not in WITHOUT_UNIT and event["unit"] != known["unit"]:
            broken(4, number, "its population was declared with another unit")
        if any(audience not in known["audiences"] for audience in event["audiences"]):
            broken(4, number, "its population was declared without one of its audiences")
        if kind in ("release-charged", "release-published") and event["audiences"] != known["audiences"]:
            broken(4, number, "it is not for all audiences of its population")

    def _batch(self, number: int, event: Any) -> None:
        subject, kind = event["subject"], event["kind"]
        batch = self.batches.get(subject["batch"])
        if kind == "batch-sealed":
            if not subject["batch"] or batch is not None:
                broken(5, number, "a batch is sealed twice")
            new = {"population": subject["population"], "purged": False, "unfinished": set(), "published": set()}
            self.batches[subject["batch"]] = new
            ids = event["details"].get("people_ids")
            self._people(number, self.people.seal(subject["population"], subject["batch"], ids))
            return
        if batch is None or batch["population"] != subject["population"]:
            broken(5, number, "its batch was not sealed, or in another population")
        if batch["purged"] and kind in NOT_AFTER_PURGE:
            broken(6, number, "its batch was purged")

    def _erased(self, number: int, subject: Any, details: Any) -> None:
        batch, told = self.batches[subject["batch"]], details.get("published")
        if subject["population"] not in self.to_erase:
            broken(15, number, "an erasure that nobody asked for")
        if not isinstance(told, list) or not all(isinstance(one, str) for one in told):
            broken(15, number, "an erasure does not say what was published")
        if sorted(told) != sorted(batch["published"]):
            broken(15, number, "an erasure does not say what was published")
        effect = "after a release" if told else "before any release"
        if details.get("effect") != ("labels were purged already" if batch["purged"] else effect):
            broken(15, number, "an erasure has another effect")

    # --- releases and answers: waiting → approved → open → cancelled → over ----------------------------------

    def _release(self, number: int, event: Any, kind: str) -> None:
        name, batch = event["subject"]["work"], event["subject"]["batch"]
        work = self.works.get(name)
        same = work is not None and work["batch"] == batch
        state = work["state"] if work is not None and same else ""
        unfinished = self.batches[batch]["unfinished"]
        if kind == "release-requested":
            if not name or work is not None:
                broken(7, number, "it was asked for or charged before")
            self.works[name] = {"state": "waiting", "batch": batch, "asked": event}
            unfinished.add(name)
        elif kind in ("release-approved", "release-declined"):
            if state != "waiting":
                broken(9, number, "it does not wait for anybody")
            self._decided(number, event, work)
        elif kind == "release-charged":
            self._charged(number, event, work)
        elif kind == "release-cancelled":
            said = {"waiting": "accepted", "open": "charged"}.get(state)
            if said is None or event["details"].get("state") != said:
                broken(11, number, "it neither waits nor has an open charge")
            work["state"] = "cancelled" if state == "open" else "over"  # type: ignore[index]  # it has a state
        elif kind == "charge-returned":
            if state != "cancelled":
                broken(11, number, "its charge is not open, or it was not cancelled")
            self._returned(number, event, work)
        else:
            if state != "open":
                broken(12, number, "it has no open charge")
            self._published(number, event, work)
        if self.works[name]["state"] == "over":
            unfinished.discard(name)

    @staticmethod
    def _decided(number: int, event: Any, work: Any) -> None:
        if event["kind"] == "release-declined":
            work["state"] = "over"
            return
        asker = work["asked"]["actor"]
        if event["details"].get("requested_by") != asker or event["actor"].casefold() == asker.casefold():
            broken(9, number, "who asked for it approved it")
        work.update(state="approved", approver=event["actor"])

    def _charged(self, number: int, event: Any, work: Any) -> None:
        subject, details, charge = event["subject"], event["details"], event["epsilon_nano"]
        known = self.populations[subject["population"]]
        if not subject["work"] or (work is not None and work["state"] not in ("waiting", "approved")):
            broken(7, number, "it was charged before")
        if known["four eyes"] or work is not None:
            self._as_approved(number, event, work)
        place = subject["population"], subject["batch"]
        nano, atto = self.spent.get(place, (0, 0))
        now = nano + charge["total"], atto + units(event["delta"], ATTO, "δ")
        if now[0] > known["life"] or now[1] > known["delta"]:
            broken(8, number, "the batch is charged beyond its lifetime ε or δ")
        if "predictor" in details:
            self._query(number, event)
        if details.get("by_audience") is not None:
            self._by_audience(number, event)
        self.spent[place] = now
        self._people(number, self.people.charge(*place))
        body = self.people.body_of.get(place[0])
        self._ceilings(number, self.policies.charge(event, now[0], body, work is not None))
        self.works[subject["work"]] = {"state": "open", "batch": subject["batch"], "charge": event}
        self.batches[subject["batch"]]["unfinished"].add(subject["work"])

    @staticmethod
    def _as_approved(number: int, event: Any, work: Any) -> None:
        if work is None or work["state"] != "approved" or work["batch"] != event["subject"]["batch"]:
            broken(10, number, "it was charged without an approval")
        if work["approver"] != event["actor"]:
            broken(10, number, "somebody else charged it than approved it")
        split = {part: decimal(nano) for part, nano in event["epsilon_nano"].items()} | {"delta": event["delta"]}
        per_unit = ("epsilon_per_unit", "delta_per_unit")
        charged = {name: value for name, value in event["details"].items() if name not in per_unit}
        request = canonical_bytes(work["asked"]["details"])
        if "epsilon" in charged or request != canonical_bytes(charged | {"epsilon": split}):
            broken(10, number, "another release was charged than was asked for")

    def _returned(self, number: int, event: Any, work: Any) -> None:
        charge = work["charge"]
        if (charge["epsilon_nano"], charge["delta"]) != (event["epsilon_nano"], event["delta"]):
            broken(11, number, "another ε is returned than was charged")
        place = event["subject"]["population"], event["subject"]["batch"]
        nano, atto = self.spent[place]
        self.spent[place] = nano - event["epsilon_nano"]["total"], atto - units(event["delta"], ATTO, "δ")
        self.people.give_back(place[0])
        work["state"] = "over"

    def _published(self, number: int, event: Any, work: Any) -> None:
        answer = work["charge"]["details"].get("answer")
        of_release = event["kind"].startswith("release-")
        if of_release != (answer is None) or canonical_bytes(event["details"].get("answer")) != canonical_bytes(answer):
            broken(12, number, "it was charged as something else")
        if event["kind"].endswith("-published"):
            details = work["charge"]["details"]
            if not event["audiences"] and "predictor" not in details:
                broken(12, number, "it is published for nobody")
            if "lost" in details or ("restored" in details and "restored" not in event["details"]):
                broken(12, number, "a restore charged it again, for what was published before")
            self.batches[event["subject"]["batch"]]["published"].add(event["subject"]["work"])
        work["state"] = "over"

    # --- what audiences cause --------------------------------------------------------------------------------

    def _predictor(self, number: int, subject: Any, details: Any, kind: str) -> None:
        name = subject["work"]
        known = self.predictors.get(name)
        if kind == "predictor-retired":
            if known is None or known["retired"] or known["batch"] != subject["batch"]:
                broken(13, number, "it was not made, or retired before")
            known["retired"] = True
            return
        if not name or known is not None or details.get("predictor") != name:
            broken(13, number, "it was made before")
        plan = details.get("plan")
        told = [
            amount(plan.get(f"epsilon_{what}")) if isinstance(plan, dict) else None for what in ("per_query", "cap")
        ]
        if None in told:
            broken(13, number, "it does not say what its queries charge")
        made = {"batch": subject["batch"], "each": told[0], "cap": told[1], "spent": 0, "retired": False}
        self.predictors[name] = made

    def _query(self, number: int, event: Any) -> None:
        name, charge = event["details"]["predictor"], event["epsilon_nano"]
        known = self.predictors.get(name) if isinstance(name, str) else None
        if known is None or known["retired"] or known["batch"] != event["subject"]["batch"]:
            broken(13, number, "its predictor was not made, or retired")
        known["spent"] += known["each"]
        each = charge["total"] == charge["randomize"] == known["each"] and event["delta"] == "0"
        if not each or known["spent"] > known["cap"]:
            broken(13, number, "it charges something else than a query, or is beyond the cap")

    def _by_audience(self, number: int, event: Any) -> None:
        of, audience = event["details"].get("answer"), event["details"]["by_audience"]
        if audience not in event["audiences"] or not isinstance(of, str):
            broken(14, number, "nobody who may asked for it")
        place = event["subject"]["batch"], of
        self.used[place] = self.used.get(place, 0) + event["epsilon_nano"]["total"]
        if self.used[place] > self.allowed.get(place, 0):
            broken(14, number, "audiences charge more than they are allowed")
