"""Disclosure of a population to outsiders: its facts in sentences, which the templates arrange.

The facts come from the ledger, the audit store and signed documents alone, never from labels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from label_dp.documents.answer import Answer
from label_dp.documents.manifest import Manifest
from label_dp.documents.statement_text import PRIOR_ODDS, count, in_all_words, number, odds_factor, surest
from label_dp.privacy import Epsilon, delta_string, parse_delta
from label_dp.schemas.replies import GivenOut, PeopleBudgetOut
from labels_party.ledger.populations import Population

QUESTIONS = {  # block of the pyramid of NIST SP 800-226: its question, as in the guide when-to-use.md
    "Privacy parameters": "what are ε and δ, and do they hold for everything that was given?",
    "Unit of privacy": "whose change is hidden?",
    "Algorithms and correctness": "does the code do what the proof says?",
    "Utility": "is the result still of use?",
    "Bias": "who gets wrong results?",
    "Access control": "who reaches the raw data?",
    "Trust models": "whom must one trust?",
    "Side channels": "what do time, sizes and errors tell?",
    "Data collection exposure": "what is collected, and how long is it kept?",
}


@dataclass(frozen=True)
class Disclosure:
    """Public facts of a population. `summary` is its row of `summaries`; `published` lists its documents, oldest
    first; `manifests` are those of its releases, `answers` the newest of each kind. `lost_files` counts documents
    whose files were lost before a restore; `length` and `head` are the audit store's."""

    population: Population
    other_labels: list[str]
    summary: dict[str, Any]
    published: list[GivenOut]
    manifests: list[Manifest]
    answers: list[Answer]
    lost_files: int
    people: PeopleBudgetOut | None
    ceilings: str
    purges: int
    erasures: int
    length: int
    head: str
    day: str
    key_id: str

    @property
    def days(self) -> list[str]:
        """Days of publication, in order."""
        return sorted(str(row["published"]) for row in self.published)

    @property
    def epsilon_per_unit(self) -> str:
        """ε of the privacy unit: of a person where a unit column names it, else of an example."""
        return str(self.summary["per_unit"] or self.summary["spent"])

    @property
    def delta_lifetime(self) -> int:
        return self.population.lifetime_delta

    @property
    def delta_per_unit(self) -> str:
        spent = parse_delta(self.summary["delta_spent"])
        bound = self.population.unit.bound_delta(Epsilon.parse(self.summary["spent"]), spent)
        return delta_string(spent if bound is None else bound)

    @property
    def unit_name(self) -> str:
        column = self.population.unit.unit_column
        return "the label of one example" if column is None else f"all labels of one {column} in the population"

    @property
    def seal(self) -> str:
        """Key and audit store that the page rests on."""
        return f"an audit store of {self.length:,} events with the head {self.head}, and signed with key {self.key_id}"

    def unit_sentences(self) -> Iterator[str]:
        """Yield whose change is hidden."""
        unit = self.population.unit
        yield (
            "Two data sets are neighbours if the label of one example differs; ids, their number and what was sent "
            "beside them are public."
        )
        if unit.unit_column is None:
            yield "No unit column is declared: labels of one person add up."
        else:
            yield f"Of one {unit.unit_column}, at most {count(unit.max_examples or 1, 'example')} keep their label."
        if self.people is not None:
            yield (
                f"The population is of the people '{self.people['people']}', whose lifetime ε holds over "
                f"{count(len(self.people['populations']), 'label column')}."
            )

    def budget_sentences(self) -> Iterator[str]:
        """Yield the ledger's figures: ε and δ, spent and for the lifetime."""
        summary, unit = self.summary, self.population.unit
        yield f"ε {summary['spent']} of a lifetime ε {summary['lifetime']} was spent for each example at most."
        if unit.unit_column is not None:
            yield f"For one {unit.unit_column} this is ε {self.epsilon_per_unit} at most."
        if self.delta_lifetime:
            yield f"δ {summary['delta_spent']} of a lifetime δ {summary['delta_lifetime']} was spent."
            if unit.unit_column is not None:
                yield f"For one {unit.unit_column} this is δ {self.delta_per_unit} at most."
        else:
            yield "δ is 0."
        if self.people is not None:
            body = self.people
            delta = f", and δ {body['delta_spent_at_most']} of {body['delta_lifetime']}"
            yield (
                f"Over all label columns of the people '{body['people']}' one {body['person']} has spent at most ε "
                f"{body['epsilon_spent_at_most']} of its lifetime {body['epsilon_lifetime']}"
                f"{'' if body['delta_lifetime'] == '0' else delta}."
            )
        yield (
            f"The sum is over {count(summary['releases'], 'release')} and {count(summary['answers'], 'answer')}, and "
            "over charges whose draw failed."
        )

    def mechanism_sentences(self) -> Iterator[str]:
        """Yield mechanisms that were drawn, each with the terms of its proof."""
        for sentence, times in Counter(map(_proof, self.manifests)).items():
            yield f"{count(times, 'release')} by {sentence}"
        for answer in self.answers:
            source = f" ({answer.mechanism.source})" if answer.mechanism.source else ""
            delta = f", δ {delta_string(answer.epsilon.delta_atto)}" if answer.epsilon.delta_atto else ""
            yield (
                f"Answers of kind {answer.kind}, the newest at ε {answer.epsilon.total}{delta}: "
                f"{answer.mechanism.name}{source}; neighbours: {answer.adjacency}."
            )
        if self.lost_files:
            yield f"{count(self.lost_files, 'document')} was charged whose files were lost before a restore."
        for randomness in sorted({d.randomness for d in (*self.manifests, *self.answers)}):
            yield f"Randomness: {randomness}."

    def rule_sentences(self) -> Iterator[str]:
        """Yield who else must agree, and the ceilings of the organisation's policy."""
        yield (
            "A second person approves every charge."
            if self.population.four_eyes
            else "The population's rules ask for no second person."
        )
        yield f"Ceilings of the organisation's policy: {self.ceilings}."

    def keeping_sentences(self) -> Iterator[str]:
        """Yield where labels come from, and how long they are kept."""
        population, summary = self.population, self.summary
        examples = count(summary["examples"], "example")
        yield f"Raw labels of {examples} in {batches(summary['batches'])} stay with the labels party."
        if population.events is None:
            yield "The owner sends one label for each example."
        else:
            yield f"Labels come from events: {population.events.sentence}."
        if population.retention_days is None:
            yield "No day is set on which labels are purged."
        else:
            yield f"Labels are purged {count(population.retention_days, 'day')} after publication."
        yield from self.deletion_sentences()

    def deletion_sentences(self) -> Iterator[str]:
        """Yield what was deleted, and what an erasure does."""
        missing = self.population.missing_label
        yield f"{count(self.purges, 'purge')} and {count(self.erasures, 'erasure')} are in the audit store so far."
        yield (
            "No label can ever be erased by itself: there is no missing-label value."
            if missing is None
            else f"An erased example takes the missing-label value {missing}; no ε comes back."
        )

    def risk_sentences(self) -> Iterator[str]:
        """Yield what all documents together may tell a reader."""
        spent, unit = Epsilon.parse(self.summary["spent"]), self.population.unit.unit_column
        yield f"All documents change the odds of two labels of an example by a factor of {odds_factor(spent)} at most."
        for prior, words in PRIOR_ODDS:
            yield f"Who held a guess at one label at {words} before may be {surest(spent, prior)} sure afterwards."
        whose = "the label of an example" if unit is None else f"the labels of one {unit}"
        yield in_all_words(Decimal(self.epsilon_per_unit), whose)

    def utility_sentences(self) -> Iterator[str]:
        """Yield the expected loss of a label, by mechanism and ε."""
        losses = Counter(
            f"{m.mechanism.name} at ε {m.epsilon.total}: expected {m.loss} loss of a label "
            f"{number(float(m.expected_loss))}"
            for m in self.manifests
            if m.expected_loss is not None
        )
        yield from (f"{sentence} ({count(times, 'release')})." for sentence, times in losses.items())

    def bias_sentences(self) -> Iterator[str]:
        """Yield mechanisms whose corrected values have no bias."""
        numeric = [m for m in self.manifests if not m.domain.nominal and m.read_channel().unbiased]
        if names := sorted({m.mechanism.name for m in numeric}):
            yield f"Corrected values have the right mean for every label, by {', '.join(names)}."

    @property
    def approvals(self) -> str:
        approved = sum(1 for row in self.published if row["approved_by"])
        return f"{approved:,} of {count(len(self.published), 'document')} had a second person's approval."

    @property
    def receipts(self) -> str:
        receipts = sum(len(row["receipts"]) for row in self.published)
        return f"{count(receipts, 'signed receipt')} of recipients came back."

    def ruled_out(self) -> list[str]:
        return [f"{sentence[0].upper()}{sentence[1:]}." for sentence in self.population.ruled_out()]


def batches(number: int) -> str:
    """Format a count of batches."""
    return f"{number:,} {'batch' if number == 1 else 'batches'}"


def _proof(manifest: Manifest) -> str:
    """Describe a release's mechanism and each part of its ε."""
    channel, split = manifest.read_channel(), manifest.epsilon
    parts = [
        f"{manifest.mechanism.name} at ε {split.total}: the largest ratio of two weights of one output is at most "
        f"e^{channel.epsilon} in whole numbers out of 2⁶⁴, within ε_randomize {split.randomize}"
    ]
    if split.prior:
        parts.append(f"ε_prior {split.prior} for a prior ({manifest.prior.method or manifest.prior.source})")
    if manifest.clipping is not None:
        parts.append(f"ε_clip {split.clip} for the range of labels ({manifest.clipping.mechanism})")
    return "; ".join(parts) + "."
