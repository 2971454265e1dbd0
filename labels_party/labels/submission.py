"""Submission to a batch: a list of its examples, or records of labels."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from labels_party.labels.batches import DELETE, EXAMPLES, LABELS, PUBLIC, Batch
from labels_party.labels.columns import example_schema, label_schema
from labels_party.labels.parsing import ID, LABEL, TIME, UNIT
from labels_party.ledger.populations import Population

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Submission:
    """Submission to a batch.

    `mode` is insert, upsert (a null label deletes) or delete (ids alone), or None for a list of examples. `fields`: the
    sender's names of the columns of id, label and unit, the unit last. Only the `owner` learns that an id has a record
    and may replace a list; the insert of anybody else is set aside.
    """

    batch: Batch
    population: Population
    mode: str | None
    fields: tuple[str, ...] = (ID, LABEL, UNIT)
    owner: bool = field(kw_only=True)

    @property
    def kind(self) -> str:
        return EXAMPLES if self.mode is None else LABELS

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns to read."""
        plain = self.fields[: 1 if self.mode in (None, DELETE) else 2]
        return (*plain, *((self.unit_field,) if self.units else ()), *((TIME,) if self.times else ()))

    @property
    def id_field(self) -> str:
        return self.fields[0]

    @property
    def label_field(self) -> str:
        return self.fields[1]

    @property
    def unit_field(self) -> str:
        return self.fields[-1]

    @property
    def units(self) -> bool:
        """True if units come with this submission: with the list of examples, or with labels if presence is public."""
        return has_units(self.population) and (self.mode is None or self.batch.presence == PUBLIC)

    @property
    def times(self) -> bool:
        """True if a list of examples comes with their times, from which events count for some days."""
        return self.mode is None and has_times(self.population)

    @property
    def usual(self) -> tuple[dict[str, str], ...]:
        """Default column names of a table if the sender names none: the population's unit column."""
        column = self.population.unit.unit_column
        return ({UNIT: column},) if self.units and column is not None else ()

    @property
    def schema(self) -> pa.Schema:
        """Schema of the stored rows."""
        if self.mode is None:
            return example_schema(self.units, self.times)
        return label_schema(self.units)


def has_units(population: Population) -> bool:
    """Return whether examples of the population belong to units."""
    return population.unit.unit_column is not None


def has_times(population: Population) -> bool:
    """Return whether events count from times of the population's examples."""
    return population.events is not None and population.events.window_days is not None
