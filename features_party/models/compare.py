"""Models side by side: the data and cost of each, and its gain over a constant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from features_party.models.card_reading import reading_card
from features_party.models.folder import SavedModel
from features_party.training.model import TrainedModel
from label_dp.errors import InvalidInput

MOST = 20


@reading_card()
def compare(saved: Sequence[tuple[str, SavedModel]]) -> dict[str, Any]:
    """Tabulate two or more (name, model).

    Raises InvalidInput if their label or its domain differ, InvalidFile for a damaged card.
    """
    cards = [(name, one.card) for name, one in saved]
    if not 2 <= len(cards) <= MOST:
        raise InvalidInput(f"Compare 2 to {MOST} models.")
    if len({name for name, _ in cards}) < len(cards):
        raise InvalidInput("The same model is named twice.")
    kinds = {(card["label"], str(sorted(card["domain"].items()))) for _, card in cards}
    if len(kinds) > 1:
        labels = ", ".join(f"'{name}' predicts {card['label']} in {_domain(card)}" for name, card in cards)
        raise InvalidInput(f"Only models of the same label and domain can be compared, and these differ: {labels}.")
    first = cards[0][1]
    same = len({frozenset(m["manifest_digest"] for m in card["messages"]) for _, card in cards}) == 1
    return {
        "label": first["label"],
        "domain": _domain(first),
        "same_messages": same,
        "note": "The gains are estimated on held-out rows of the same messages."
        if same
        else "The models were trained on different messages, so their gains are over different examples.",
        "models": [_row(name, one.model, one.card) for name, one in saved],
    }


def _domain(card: dict[str, Any]) -> str:
    return str(card.get("domain_text") or card["domain"])


def _row(name: str, model: TrainedModel, card: dict[str, Any]) -> dict[str, Any]:
    report, capacity = card["report"], card["capacity"]
    members = model.body.members()
    return {
        "model": name,
        "kind": card["kind"],
        "loss": card["loss"],
        "objective": card["objective"],
        "mechanisms": sorted({m["mechanism"] for m in card["messages"]}),
        "corrections": sorted({m["correction"]["applied"] for m in card["messages"]}),
        "releases": [m["release"] for m in card["messages"]],
        "epsilon": [{"name": e["name"], "epsilon_per_example": e["epsilon_per_example"]} for e in card["epsilon"]],
        "rows": report["rows"],
        "effective_rows": capacity["effective_rows"],
        "noise_variance": report["noise_variance"],
        "trees": model.body.count,
        "depth": capacity["depth"] if model.body.count is not None else None,
        "members": members,
        "gain": report["error_estimate"],
        "gain_why": report["error_estimate_why"],
        "seconds": card.get("seconds"),
        "created": card["created"],
    }
