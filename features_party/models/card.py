"""A model's card: the labels it learned from, their cost, their correction, and its claims."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Protocol

from features_party.receive.accepted import AcceptedMessage, described
from features_party.tables.unmatched import Counts
from features_party.training.class_metrics import ClassMetrics
from features_party.training.classes import class_names
from features_party.training.correction import Correction
from features_party.training.estimate import ErrorEstimate
from label_dp.documents.answer import Answer
from label_dp.documents.hand_over import KeyFamilies
from label_dp.documents.manifest import Manifest
from label_dp.documents.rehearsal import Rehearsal
from label_dp.domain import Domain
from label_dp.privacy import ZERO, Epsilon, EpsilonSplit, delta_string
from label_dp.schemas.json_types import JsonObject

if TYPE_CHECKING:  # a message is verified and shown where nothing that trains is installed
    from features_party.training.model import TrainedModel

EPSILON_RULE = (
    "Releases of one batch add up. Batches of a population have no example in common, so the largest batch counts. "
    "Populations are listed apart: whoever is in several has the sum. A person with up to c examples over the "
    "population's lifetime has at most c times the figure per example."
)


REHEARSED = "trained on a rehearsal: its labels are made up, so it predicts nothing, and it has no ε"


def epsilon_by_population(
    messages: Iterable[dict[str, Any]], answer: Answer | None = None, keys: KeyFamilies | None = None
) -> list[dict[str, Any]]:
    """List ε (and δ) per example of each population by EPSILON_RULE; per unit too if all messages name one unit column.

    `messages` are as a card lists them, rehearsals at no ε. `answer` is of one batch too, counted beside its releases.
    `keys` that handed over to each other are one labels party's.
    """
    of: dict[tuple[str, str], list[dict[str, Any]]] = {}
    keys = keys or KeyFamilies()
    for entry in [*(m for m in messages if not m.get("rehearsal")), *([] if answer is None else [_answer(answer)])]:
        # a labels party chooses the ids of its populations, so they say nothing about another's
        of.setdefault((keys.of(entry["key_id"]), entry["population"]), []).append(entry)
    return [_population(entries) for entries in of.values()]


def _population(entries: list[dict[str, Any]]) -> dict[str, Any]:
    batches: dict[str, list[EpsilonSplit]] = {}
    for entry in entries:
        batches.setdefault(entry["batch"], []).append(EpsilonSplit.from_json(entry["epsilon"]))
    epsilon = max(sum((split.total for split in splits), ZERO) for splits in batches.values())
    first, releases = entries[0], [entry for entry in entries if "release" in entry]
    return {
        "population": first["population"],
        "name": first["population_name"],
        "label": first["label"],
        "key_id": first["key_id"],
        "batches": len(batches),
        "releases": len(releases),
        "answers": len(entries) - len(releases),
        "epsilon_per_example": str(epsilon),
        "delta_per_example": delta_string(
            max(sum(split.delta_atto for split in splits) for splits in batches.values())
        ),
        "unit": _unit([entry["unit"] for entry in entries], epsilon),
    }


def _unit(units: list[dict[str, Any]], epsilon: Epsilon) -> dict[str, Any] | None:
    """Return c·ε, since at most c of a person's examples are in the population, in any of its batches."""
    most = [unit["max_examples"] for unit in units]
    if None in most or len({unit["column"] for unit in units}) > 1:
        return None
    per_unit = f"{(max(most) * Decimal(str(epsilon))).normalize():f}"
    return {"column": units[0]["column"], "max_examples": max(most), "epsilon_per_unit": per_unit}


def _answer(answer: Answer) -> dict[str, Any]:
    return described(answer) | {"unit": answer.privacy_unit.as_json()}


class CardSource(Protocol):
    """Members of a card that come from a join."""

    @property
    def messages(self) -> tuple[AcceptedMessage, ...]: ...

    @property
    def corrections(self) -> tuple[Correction, ...]: ...

    @property
    def counts(self) -> Counts: ...


def build_card(
    model: TrainedModel,
    joined: CardSource,
    domain: Domain,
    estimate: ErrorEstimate | ClassMetrics | str | None,
    created: str,
    seconds: float,
    keys: KeyFamilies | None = None,
) -> dict[str, Any]:
    """Build all members of `card.json` of a model of messages, besides its format and the digest of the model.

    `estimate` is the error estimate, or the reason for its absence; `seconds` is the duration of the training.
    """
    aloud = [] if joined.counts.unmatched_warning is None else [joined.counts.unmatched_warning]
    messages = [
        of_message(m.manifest, m.digest) | {"correction": c.as_json()}
        for m, c in zip(joined.messages, joined.corrections, strict=True)
    ]
    notes = [*([REHEARSED] if joined.messages[0].rehearsed else []), *aloud]
    label, epsilon = joined.messages[0].manifest.population.label, epsilon_by_population(messages, keys=keys)
    if any(column.name.casefold() == label.casefold() for column in model.schema.columns):
        notes.append(f"a feature has the label's name '{label}': if it is the label, the estimates are void")
    origin: JsonObject = {"created": created, "seconds": seconds, "label": label}
    origin |= {"messages": messages, "answers": [], "epsilon": epsilon}
    return _card(model, domain, origin, joined.counts, notes, estimate, _why(estimate))


def sums_card(
    model: TrainedModel,
    answer: Answer,
    digest: str,
    counts: Counts,
    estimate: ErrorEstimate,
    why: str,
    created: str,
    seconds: float,
    keys: KeyFamilies | None = None,
) -> JsonObject:
    """Build the same members of a model of an answer; `why` says how its error was estimated."""
    of = _answer(answer) | {"answer": answer.id, "kind": answer.kind, "document_digest": digest}
    origin: JsonObject = {"created": created, "seconds": seconds, "label": answer.population.label}
    origin |= {"messages": [], "answers": [of], "epsilon": epsilon_by_population([], answer, keys)}
    return _card(model, answer.domain, origin, counts, [], estimate, why)


def _card(
    model: TrainedModel,
    domain: Domain,
    origin: JsonObject,
    counts: Counts,
    notes: list[str],
    estimate: ErrorEstimate | ClassMetrics | str | None,
    why: str,
) -> JsonObject:
    members: dict[str, Any] = {
        "calibration": None,
        "kind": model.kind,
        "loss": model.loss,
        "objective": model.objective,
        "domain": domain.as_json(),
        "domain_text": str(domain),
        "classes": None if model.classes is None else class_names(model.classes),
        "epsilon_rule": EPSILON_RULE,
        "capacity": model.capacity.as_json(),
        "trees": model.body.count,
        "members": model.body.members(),
        "features": [
            {"name": c.name, "kind": c.kind, **({"values": len(c.vocabulary)} if c.kind == "category" else {})}
            for c in model.schema.columns
        ],
        "statistics": [
            {"name": s.name, "column": model.schema.category_names[s.category]} for s in model.schema.statistics
        ],
        "crossings": [{"name": c.name, "groups": len(c.groups)} for c in model.schema.crossings],
        "importance": {name: round(share, 4) for name, share in model.body.importance(model.schema).items()},
        "report": {
            "rows": counts.matched,
            **counts.model_dump(),
            "corrected_mean": model.mean,
            "noise_variance": model.capacity.noise_variance,
            "label_variance": model.capacity.label_variance,
            "error_estimate": estimate.as_card() if isinstance(estimate, ErrorEstimate | ClassMetrics) else None,
            "error_estimate_why": why,
        },
        "notes": [*notes, *model.notes],
    }
    return origin | members


def summary(card: dict[str, Any]) -> dict[str, Any]:
    """Return the members that identify a model in a list."""
    epsilon = [{"name": e["name"], "epsilon_per_example": e["epsilon_per_example"]} for e in card["epsilon"]]
    return {"label": card["label"], "epsilon": epsilon, "explained": explained(card["report"])}


def explained(report: dict[str, Any]) -> float | None:
    """Estimate the share of the labels' variance, without noise, by which the squared error is below the constant's."""
    estimate, variance = report["error_estimate"], float(report["label_variance"] - report["noise_variance"])
    if estimate is None or estimate.get("mse_below_constant") is None or variance <= 0:
        return None
    return round(min(float(estimate["mse_below_constant"]) / variance, 1.0), 4)  # an estimate may exceed it


def _why(estimate: ErrorEstimate | ClassMetrics | str | None) -> str:
    """Say how the error was estimated, or why it was not."""
    if isinstance(estimate, str):
        return estimate
    if estimate is not None:
        return (
            "from privatized labels of rows that the judged models did not see, by the channel alone; these models saw "
            "fewer rows than this one, which is on average a little better"
        )
    return "too few rows to hold some out"


def of_message(manifest: Manifest, digest: str) -> dict[str, Any]:
    """Return a card's members about a message, without its correction."""
    return described(manifest) | {
        "release": manifest.id,
        **({"rehearsal": True} if isinstance(manifest, Rehearsal) else {}),
        "manifest_digest": digest,
        "mechanism": manifest.mechanism.name,
        "clipping": None if manifest.clipping is None else manifest.clipping.summary(),
        "loss": manifest.loss,
        "unit": manifest.unit_said,
    }
