"""What a model's card says: the labels it learned from, what they cost, how they were corrected, what it may claim."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from features_party.join import Joined
from features_party.training.estimate import Estimate
from features_party.training.model import TrainedModel
from shared.message.manifest import Manifest
from shared.privacy import ZERO, Epsilon


def epsilon_by_population(manifests: Iterable[Manifest]) -> list[dict[str, str]]:
    """ε per example of each population: releases of one batch add up, batches are disjoint, so the largest counts."""
    names: dict[str, str] = {}
    spent: dict[str, dict[str, Epsilon]] = defaultdict(lambda: defaultdict(lambda: ZERO))
    for manifest in manifests:
        population = manifest.population
        names[population.id] = population.name
        spent[population.id][manifest.batch] += manifest.split.total
    return [
        {"population": key, "name": names[key], "epsilon_per_example": str(max(spent[key].values()))} for key in names
    ]


def build_card(model: TrainedModel, joined: Joined, estimate: Estimate | None, created: str) -> dict[str, Any]:
    """All members of `card.json` besides its format and the digest of the model."""
    messages = [
        {
            "release": m.release,
            "batch": m.manifest.batch,
            "population": m.manifest.population.id,
            "manifest_digest": m.digest,
            "mechanism": m.manifest.mechanism.name,
            "n": m.manifest.n,
            "epsilon": dict(m.manifest.epsilon),
            "correction": c.as_json(),
        }
        for m, c in zip(joined.messages, joined.corrections, strict=True)
    ]
    unbiased = all(c.unbiased for c in joined.corrections)
    why = (
        "from held-out rows: corrected labels have the true labels as their expectation"
        if estimate is not None
        else "too few rows to hold some out"
        if unbiased
        else "none: with this channel E[corrected label | label] differs from the label, so privatized labels do not "
        "show a model's true error"
    )
    first = joined.messages[0].manifest
    return {
        "created": created,
        "kind": model.kind,
        "loss": model.loss,
        "objective": model.objective,
        "label": first.population.label,
        "domain": first.domain,
        "messages": messages,
        "epsilon": epsilon_by_population(m.manifest for m in joined.messages),
        "capacity": model.capacity.as_json(),
        "features": [
            {"name": c.name, "kind": c.kind, **({"values": len(c.vocabulary)} if c.kind == "category" else {})}
            for c in model.schema.columns
        ],
        "importance": {name: round(share, 4) for name, share in model.importance().items()},
        "report": {
            "rows": joined.counts.matched,
            **joined.counts.as_json(),
            "corrected_mean": model.mean,
            "noise_variance": model.capacity.noise_variance,
            "label_variance": model.capacity.label_variance,
            "error_estimate": estimate.as_json() if estimate is not None else None,
            "error_estimate_why": why,
        },
        "notes": list(model.notes),
    }
