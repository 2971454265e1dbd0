"""What a model's card says: the labels it learned from, what they cost, how they were corrected, what it may claim."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from features_party.join import Joined
from features_party.training.estimate import ErrorEstimate
from features_party.training.model import TrainedModel
from shared.domain import Domain
from shared.message.answer import Answer
from shared.message.manifest import Manifest
from shared.privacy import ZERO, Epsilon, EpsilonSplit, delta_string

EPSILON_RULE = (
    "Releases of one batch add up. Batches of a population have no example in common, so the largest batch counts. "
    "Populations are listed apart: whoever is in several has the sum. A person with up to c examples over the "
    "population's lifetime has at most c times the figure per example."
)


def epsilon_by_population(manifests: Iterable[Manifest]) -> list[dict[str, Any]]:
    """ε (and δ) per example of each population by EPSILON_RULE; per unit too where messages name a unit column."""
    of: dict[tuple[str, str], list[Manifest]] = {}
    for manifest in manifests:
        # a labels party chooses the ids of its populations, so they say nothing about another's
        of.setdefault((manifest.key_id, manifest.population.id), []).append(manifest)
    return [_population(found) for found in of.values()]


def _population(manifests: list[Manifest]) -> dict[str, Any]:
    batches: dict[str, list[EpsilonSplit]] = {}
    for manifest in manifests:
        batches.setdefault(manifest.batch, []).append(manifest.split)
    epsilon = max(sum((split.total for split in splits), ZERO) for splits in batches.values())
    delta = max(sum(split.delta_atto for split in splits) for splits in batches.values())
    first = manifests[0]
    return {
        "population": first.population.id,
        "name": first.population.name,
        "label": first.population.label,
        "key_id": first.key_id,
        "batches": len(batches),
        "releases": len(manifests),
        "epsilon_per_example": str(epsilon),
        "delta_per_example": delta_string(delta),
        "unit": _unit(manifests, epsilon),
    }


def epsilon_with_answer(card: dict[str, Any], answer: Answer) -> list[dict[str, Any]]:
    """ε by population of a card's messages together with an answer's, by EPSILON_RULE: the answer's batch has its
    releases' ε and the answer's."""
    place, found = (answer.key_id, answer.population.id), [dict(entry) for entry in card.get("epsilon", [])]
    same = [m for m in card.get("messages", []) if (m.get("key_id"), m["population"]) == place]
    batches: dict[str, list[EpsilonSplit]] = {answer.batch: [answer.split]}
    for message in same:
        batches.setdefault(message["batch"], []).append(EpsilonSplit.from_json(message["epsilon"]))
    epsilon = max(sum((split.total for split in splits), ZERO) for splits in batches.values())
    delta = max(sum(split.delta_atto for split in splits) for splits in batches.values())
    entry = next((e for e in found if (e.get("key_id"), e["population"]) == place), None)
    unit, many = (answer.unit.column, answer.unit.max_examples)
    if entry is None:
        entry = {"population": answer.population.id, "name": answer.population.name, "label": answer.population.label}
        entry |= {"key_id": answer.key_id, "releases": 0}
        found.append(entry)
    bounded = unit is not None and many is not None and (not same or entry.get("unit") is not None)
    per_unit = {
        "column": unit,
        "max_examples": many,
        "epsilon_per_unit": f"{((many or 0) * Decimal(str(epsilon))).normalize():f}",
    }
    entry |= {
        "batches": len(batches),
        "answers": 1,
        "epsilon_per_example": str(epsilon),
        "delta_per_example": delta_string(delta),
        "unit": per_unit if bounded else None,
    }
    return found


def _unit(manifests: list[Manifest], epsilon: Epsilon) -> dict[str, Any] | None:
    """c·ε, since no more than c of a person's examples are in the population, in whichever batches."""
    units = [m.unit for m in manifests]
    most = [u.max_examples for u in units if u.max_examples is not None]
    columns = {u.column for u in units}
    if len(most) < len(units) or len(columns) > 1:
        return None
    bound = max(most)
    return {
        "column": columns.pop(),
        "max_examples": bound,
        "epsilon_per_unit": f"{(bound * Decimal(str(epsilon))).normalize():f}",
    }


def build_card(
    model: TrainedModel, joined: Joined, domain: Domain, estimate: ErrorEstimate | None, created: str, seconds: float
) -> dict[str, Any]:
    """All members of `card.json` besides its format and the digest of the model. `seconds` is how long it took."""
    estimable = all(m.manifest.read_channel().unbiased for m in joined.messages)
    why = (
        "from privatized labels of rows that the judged models did not see, by the channel alone"
        if estimate is not None
        else "too few rows to hold some out"
        if estimable
        else "none: with this channel E[corrected label | label] differs from the label, so privatized labels do not "
        "show a model's true error"
    )
    first = joined.messages[0].manifest
    return {
        "created": created,
        "seconds": seconds,
        "kind": model.kind,
        "loss": model.loss,
        "objective": model.objective,
        "label": first.population.label,
        "domain": domain.as_json(),
        "domain_text": str(domain),
        "messages": [
            _message(m.manifest, m.digest) | {"correction": c.as_json()}
            for m, c in zip(joined.messages, joined.corrections, strict=True)
        ],
        "epsilon": epsilon_by_population(m.manifest for m in joined.messages),
        "epsilon_rule": EPSILON_RULE,
        "capacity": model.capacity.as_json(),
        "trees": model.trees,
        "members": model.members(),
        "features": [
            {"name": c.name, "kind": c.kind, **({"values": len(c.vocabulary)} if c.kind == "category" else {})}
            for c in model.schema.columns
        ],
        "statistics": [
            {"name": s.name, "column": model.schema.categories[s.category].name} for s in model.schema.statistics
        ],
        "importance": {name: round(share, 4) for name, share in model.importance().items()},
        "report": {
            "rows": joined.counts.matched,
            **joined.counts.as_json(),
            "corrected_mean": model.mean,
            "noise_variance": model.capacity.noise_variance,
            "label_variance": model.capacity.label_variance,
            "error_estimate": estimate.as_card() if estimate is not None else None,
            "error_estimate_why": why,
        },
        "notes": list(model.notes),
    }


def _message(manifest: Manifest, digest: str) -> dict[str, Any]:
    unit = manifest.unit
    return {
        "release": manifest.release,
        "batch": manifest.batch,
        "population": manifest.population.id,
        "population_name": manifest.population.name,
        "label": manifest.population.label,
        "key_id": manifest.key_id,
        "manifest_digest": digest,
        "created": manifest.created,
        "mechanism": manifest.mechanism.name,
        **({} if manifest.clipping is None else {"clipping": manifest.clipping.summary()}),
        "loss": manifest.loss,
        "n": manifest.n,
        "epsilon": dict(manifest.epsilon),
        # by the labels party's ledger when it released this; later releases add to it
        "epsilon_spent": manifest.epsilon_spent,
        "epsilon_lifetime": manifest.epsilon_lifetime,
        "unit": {
            "kind": unit.kind,
            "column": unit.column,
            "max_examples": unit.max_examples,
            "epsilon_per_unit": unit.epsilon_per_unit,
        },
    }
