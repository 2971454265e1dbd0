"""The public description of a finished draw, made of plan, ledger and channel, never of labels."""

from __future__ import annotations

from labels_party.kinds.message.clipping import describe
from labels_party.kinds.message.engine import Drawn
from labels_party.kinds.message.plan import ReleasePlan
from labels_party.labels.batches import ID_LIST, Batch
from labels_party.ledger.populations import Population
from labels_party.ledger.rules import Account
from shared.documents.manifest import (
    FileEntry,
    Manifest,
    Mechanism,
    PriorRef,
)
from shared.documents.members import PopulationRef, Unit
from shared.privacy import Epsilon, delta_string


def build_manifest(
    release: str,
    batch: Batch,
    population: Population,
    plan: ReleasePlan,
    drawn: Drawn,
    entries: list[FileEntry],
    key_id: str,
    account: Account,
    most: Epsilon,
    today: str,
) -> Manifest:
    """The manifest of `release`, not yet signed. `account` (of its batch) and `most` (of any batch of the
    population) include this release; `today` is an ISO day."""
    assert batch.n is not None
    clipping = describe(plan.clip_quantiles, plan.split.clip, population.domain, drawn.domain)
    return Manifest(
        id=release,
        batch=batch.id,
        population=PopulationRef(id=population.id, name=population.name, label=population.label),
        audiences=list(population.audiences),
        key_id=key_id,
        created=today,
        n=batch.n,
        domain=drawn.domain.as_json(),
        domain_source="declared public by the owner" if clipping is None else "bought with ε_clip",
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
            cells=None if plan.cells is None else min(len(plan.cells) - 1, drawn.domain.k),
            release=plan.carried_from,
        ),
        epsilon=plan.split.as_json(),
        epsilon_spent=str(account.spent),
        epsilon_lifetime=str(population.lifetime),
        delta_spent=delta_string(account.spent_delta),
        delta_lifetime=delta_string(account.lifetime_delta),
        unit=Unit(
            kind="unit" if population.unit.unit_column else "example",
            column=population.unit.unit_column,
            max_examples=population.unit.max_examples,
            epsilon_per_unit=population.unit.bound(most),
        ),
        clipping=clipping,
        files=entries,
        **plan.stated,
    )
