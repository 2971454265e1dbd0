"""Numbered rules of an audit chain: what must hold of its events beyond hashes and links. Both parties' checkers and,
restated, the standalone verifier apply them; `label_dp.audit.rules` is the implementation."""

from __future__ import annotations

from dataclasses import dataclass

from label_dp.errors import AuditChainBroken


@dataclass(frozen=True)
class Rule:
    """Rule of a chain. `number` and `name` are stable: checkers report them, and a test compares them with the
    standalone verifier."""

    number: int
    name: str
    sentence: str


BEGUN = Rule(1, "begun", "A store begins with its creation, which happens once.")
COSTS = Rule(2, "costs", "Only a charge, a return and an acceptance carry ε or δ, and their ε is more than zero.")
DECLARED = Rule(
    3, "declared", "A population is declared once, by id and by name, with a label, audiences and a lifetime ε and δ."
)
AS_DECLARED = Rule(
    4,
    "as-declared",
    "What is about a population comes after its declaration and has the name, label, unit and audiences declared.",
)
SEALED = Rule(
    5, "sealed", "A batch is sealed once, in one population; whatever is about it comes after that and names that one."
)
PURGED = Rule(
    6,
    "purged",
    "A batch is purged once, while nothing of it is asked for or charged and unfinished; afterwards nothing of it is "
    "asked for, charged or published.",
)
CHARGED_ONCE = Rule(7, "charged-once", "A release or an answer is asked for once and charged once.")
LIFETIME = Rule(8, "lifetime", "No batch is charged more than its population's lifetime ε and δ, returns taken off.")
APPROVED = Rule(
    9,
    "approved",
    "A release is approved or declined while it waits for it, and approved by somebody else than who asked for it.",
)
FOUR_EYES = Rule(
    10,
    "four-eyes",
    "In a four-eyes population, and wherever a release was asked for first, the charge is by who approved it, and of "
    "exactly what was asked for.",
)
RETURNED = Rule(
    11,
    "returned",
    "A charge is returned once and whole, to its batch, after its release was cancelled, and only a release that "
    "waits or is charged, of which nothing was published and nothing failed, is cancelled.",
)
PUBLISHED = Rule(
    12,
    "published",
    "What is published, or fails, is charged and unreturned, of the same batch and kind, and ends with it: once. Only "
    "an answer that was published is shown to somebody else who may ask for it. Nothing is published of a charge with "
    "`lost`, and of one with `restored` only with it.",
)
QUERIES = Rule(
    13,
    "queries",
    "A predictor is made and retired once; in between its queries charge its batch what it says each, within its cap.",
)
ALLOWED = Rule(
    14, "allowed", "What audiences charge by themselves stays within what the owner allowed of the batch for its kind."
)
ERASED = Rule(
    15, "erased", "Labels are erased after that was asked for, and what was published of their batch is told in full."
)
ACCEPTED = Rule(16, "accepted-once", "A release or an answer of one labels party's key is accepted once.")
SAME = Rule(
    17,
    "same-declaration",
    "All that is accepted of one population of a key names the same name, label, unit and lifetime ε and δ, and a "
    "batch is of one population.",
)
STATED = Rule(
    18,
    "stated",
    "Of the items accepted of one batch of a key, those that state at most some ε spent do not add up to more than it; "
    "likewise δ.",
)
MATCHED = Rule(
    19,
    "matched",
    "What a receiver accepted is charged in the labels party's chain, unreturned, for the same population, batch, "
    "split and unit and no other audience, is published there, and states no less spent than the chain shows.",
)
HANDED_OVER = Rule(
    20,
    "handed-over",
    "A key hands over once, in a document that it signed and the next key agreed to, and that follows the hand-over to "
    "itself; the next key is new to the chain, and what is of it is of the same labels party.",
)

PEOPLE = Rule(
    21,
    "people",
    "A body of people is declared once, before its populations, which have its unit column; no charge lets one of its "
    "people have spent more than its lifetime ε and δ over all of its populations. What counts is the batch charged, "
    "and of each other population the batch of the same ids, else its largest one; where the body names units, of each "
    "the largest, as often as a unit may have examples. A population seals the same ids once.",
)

CEILINGS = Rule(
    22,
    "ceilings",
    "A charge is within the ceilings of the policy applied last: ε and δ of one charge, ε of its batch, ε of one of "
    "its people in a calendar year over the population or its body, the mechanisms and answers named, and an approval "
    "by somebody else above an ε. What a restore charges again counts, and is not refused. A policy with a looser "
    "ceiling was proposed before by somebody else than who applied it.",
)

RULES = (
    *(BEGUN, COSTS, DECLARED, AS_DECLARED, SEALED, PURGED, CHARGED_ONCE, LIFETIME, APPROVED, FOUR_EYES),
    *(RETURNED, PUBLISHED, QUERIES, ALLOWED, ERASED, ACCEPTED, SAME, STATED, MATCHED, HANDED_OVER, PEOPLE, CEILINGS),
)


class RuleBroken(AuditChainBroken):
    """Raised if an event breaks a rule; `sequence` is its number, 0 before it has one."""

    def __init__(self, rule: Rule, sequence: int, why: str) -> None:
        what = f"Audit event {sequence}" if sequence else "This audit event"
        super().__init__(f"{what} breaks rule {rule.number} ({rule.name}): {why}.")
        self.rule, self.sequence = rule, sequence
