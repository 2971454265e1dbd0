"""Members of signed documents about batch, population and charge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from label_dp.documents.members import ChainHead, PopulationRef, Unit
from label_dp.privacy import Delta, Epsilon, EpsilonSplit
from labels_party.labels.batches import Batch
from labels_party.ledger.populations import Population
from labels_party.ledger.rules import Account


def charged_members(
    key_id: str,
    name: str,
    batch: Batch,
    population: Population,
    audiences: Sequence[str],
    today: str,
    split: EpsilonSplit,
    account: Account,
    most: Epsilon,
    chain_head: ChainHead,
) -> dict[str, Any]:
    """Return the members of document `name`. `account` (of the batch) and `most` (largest ε of any batch of the
    population) include its charge; `today` is an ISO day."""
    return {
        "id": name,
        "batch": batch.id,
        "population": PopulationRef(
            id=population.id, name=population.name, label=population.label, events=population.events
        ),
        "audiences": list(audiences),
        "key_id": key_id,
        "created": today,
        "n": batch.n,
        "domain": population.domain,
        "out_of_domain": population.out_of_domain,
        "missing_label": population.missing_label,
        "epsilon": split,
        "epsilon_spent": account.spent,
        "epsilon_lifetime": population.lifetime,
        "delta_spent": Delta(account.spent_delta),
        "delta_lifetime": Delta(account.lifetime_delta),
        "unit": Unit(
            kind="unit" if population.unit.unit_column else "example",
            column=population.unit.unit_column,
            max_examples=population.unit.max_examples,
            epsilon_per_unit=population.unit.bound(most),
            examples_beyond=batch.examples_beyond,
        ),
        "chain_head": chain_head,
    }
