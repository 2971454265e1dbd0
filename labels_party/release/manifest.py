"""The public description of a finished draw, made of plan, ledger and channel, never of labels."""

from __future__ import annotations

from labels_party.budget.populations import Population
from labels_party.labels.batches import ID_LIST, Batch
from labels_party.release.engine import Drawn
from labels_party.release.plan import Plan
from shared.message.manifest import FileEntry, Manifest, Mechanism, PopulationRef, PriorRef, Unit
from shared.privacy import Epsilon


def build_manifest(
    release: str,
    batch: Batch,
    population: Population,
    plan: Plan,
    drawn: Drawn,
    entries: list[FileEntry],
    key_id: str,
    spent: Epsilon,
    most: Epsilon,
    today: str,
) -> Manifest:
    """The manifest of `release`, not yet signed. `spent` (of its batch) and `most` (of any batch of the population)
    include this release; `today` is an ISO day."""
    assert batch.n is not None
    return Manifest(
        release=release,
        batch=batch.id,
        population=PopulationRef(id=population.id, name=population.name, label=population.label),
        audiences=list(population.audiences),
        key_id=key_id,
        created=today,
        n=batch.n,
        domain=population.domain.as_json(),
        out_of_domain=population.out_of_domain,  # type: ignore[arg-type]  # checked when it was declared
        missing_label=population.missing_label,
        presence="id list given before labels counted" if batch.presence == ID_LIST else "declared public by the owner",
        mechanism=Mechanism(name=drawn.mechanism, why=drawn.why),
        loss=plan.loss_name,
        channel=drawn.channel.as_json(),
        expected_loss=None if drawn.expected_loss is None else repr(drawn.expected_loss),
        prior=PriorRef(
            source=plan.prior_source,  # type: ignore[arg-type]  # one of the plan's constants
            method=plan.prior_method,
            cells=None if plan.cells is None else len(plan.cells) - 1,
            release=plan.carried_from,
        ),
        epsilon=plan.split.as_json(),
        epsilon_spent=str(spent),
        epsilon_lifetime=str(population.lifetime),
        unit=Unit(
            kind="unit" if population.unit.unit_column else "example",
            column=population.unit.unit_column,
            max_examples=population.unit.max_examples,
            epsilon_per_unit=population.unit.bound(most),
        ),
        files=entries,
    )
