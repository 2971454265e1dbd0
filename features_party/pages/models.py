"""Models: the card, the features' importance, the gain with an interval, and models side by side."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Response
from markupsafe import Markup

from features_party.models.card import explained
from features_party.models.compare import compare
from features_party.pages.context import Cursor, Reader, newest, services
from label_dp.errors import InvalidInput
from label_dp.pages.pictures import bars, reliability
from label_dp.pages.site import page_router

router = page_router()
SHOWN = 15


@router.get("/models")
def models(visit: Reader, cursor: Cursor = None) -> Response:
    """List the models."""
    return visit.page("models", found=services(visit).models.list(newest(cursor)))


@router.get("/models/compare")
def side_by_side(visit: Reader, model: Annotated[list[str] | None, Query(max_length=20)] = None) -> Response:
    """Compare models."""
    if not model or len(model) < 2:
        raise InvalidInput("Choose two models or more to compare.")
    ctx = services(visit)
    return visit.page("compare", found=compare([(name, ctx.models.open(name)) for name in model]))


@router.get("/models/{name}")
def model(name: str, visit: Reader) -> Response:
    """Show a model's card."""
    return visit.page("model", name=name, **described(services(visit).models.open(name).card))


def described(card: dict[str, Any]) -> dict[str, object]:
    """Convert a card for `model_parts.html.jinja`."""
    estimate = card["report"]["error_estimate"]
    share = explained(card["report"])
    return {
        "card": card,
        "estimate": estimate,
        "explained": share,
        "importance": _importance(card),
        "diagram": _diagram(card),
    }


def _importance(card: dict[str, Any]) -> Markup:
    """Draw the features' shares of the model's gain, the largest first."""
    shares = sorted(card["importance"].items(), key=lambda pair: -pair[1])[:SHOWN]
    if not any(share for _, share in shares):
        return Markup("")
    text = "; ".join(f"{name} {share:.0%}" for name, share in shares[:5])
    return bars("Importance of features", text, "share of the model's gain", shares)


def _diagram(card: dict[str, Any]) -> Markup:
    """Draw the reliability, if privatized labels determine it: for probabilities of two values, and for labels."""
    told_of = card["report"]["error_estimate"] or {}
    calibration = told_of.get("calibration")
    groups = calibration.get("groups", []) if isinstance(calibration, dict) else told_of.get("reliability", [])
    if len(groups) < 2:
        return Markup("")
    x, y = [g["predicted"] for g in groups], [g["observed"]["estimate"] for g in groups]
    low, high = ([g["observed"][end] for g in groups] for end in ("low", "high"))
    text = f"The mean label against the mean prediction of {len(groups)} groups; on the dashed line both are equal."
    return reliability("Reliability", text, "mean prediction", "mean label, 95 % interval", x, y, low, high)
