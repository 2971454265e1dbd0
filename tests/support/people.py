"""A shop whose clicks have several label columns under one body of people."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from label_dp.domain import Domain
from label_dp.privacy import Epsilon
from label_dp.schemas.population import People
from labels_party.ledger.people import declaration
from tests.support.asking import population as parse_population
from tests.support.labels import LabelsParty, label_table

BODY = "shop-customers"


def body(party: LabelsParty, epsilon: str = "3", **rules: Any) -> None:
    """Declare the body."""
    s, details = party.services, declaration(People(name=BODY, lifetime_epsilon=epsilon, **rules))
    s.database.write("test.people", lambda c: s.ledger.people.declare(c, details, "test"))


def column(party: LabelsParty, label: str, lifetime: str = "10", **rules: Any) -> None:
    """Declare a population of the body, named after its label."""
    s = party.services
    declared = parse_population(label, label, Domain.parse("0:10"), lifetime, **({"people": BODY} | rules))
    s.database.write("test.population", lambda c: s.populations.create(c, declared, "test"))


def sealed(party: LabelsParty, label: str, n: int = 20, prefix: str = "click", table: pa.Table | None = None) -> str:
    """Id of a sealed batch of a column."""
    return party.sealed_batch(label_table(n, prefix=prefix) if table is None else table, label)


def columns(party: LabelsParty, *labels: str, epsilon: str = "3", prefix: str = "") -> list[str]:
    """A body with a population for each label; the id of a batch of each, of equal ids, or beginning with the label."""
    body(party, epsilon)
    for label in labels:
        column(party, label)
    return [sealed(party, label, prefix=prefix or label) for label in labels]


def left(party: LabelsParty, label: str, batch: str) -> Epsilon:
    s = party.services
    return s.database.read("left", lambda c: s.ledger.left(c, s.populations.get(c, label), batch))
