"""Rules for a release of three or more classes: they have no order, which most mechanisms and losses need."""

from __future__ import annotations

from label_dp.domain import Domain
from label_dp.errors import InvalidInput, InvalidLoss, InvalidMechanism
from label_dp.losses import LOG, SQUARED, Loss
from label_dp.schemas.release import Release
from labels_party.mechanisms.auto import AUTO, OF_CLASSES

TAKEN = (AUTO, *(candidate.name for candidate in OF_CLASSES))
ORDERLESS = "The labels of this population are classes with names, which have no order"


def loss_on(asked: str | Loss | None, domain: Domain) -> str | Loss:
    """Return the loss of a release; by default log loss for classes, squared loss for numbers. Raises InvalidLoss."""
    if not domain.nominal:
        return SQUARED.name if asked is None else asked
    if asked is None or asked == LOG.name:
        return LOG.name
    raise InvalidLoss(f"{ORDERLESS}, so the loss is 'log'; leave the loss out.")


def require_classes(asked: Release) -> None:
    """Refuse what a release of three or more classes cannot use. Raises InvalidMechanism, InvalidInput."""
    if asked.mechanism not in TAKEN:
        raise InvalidMechanism(f"{ORDERLESS}, so the mechanism is {', '.join(TAKEN[:-1])} or {TAKEN[-1]}.")
    if asked.clip_quantile is not None or asked.clip_epsilon is not None:
        raise InvalidInput(f"{ORDERLESS} and so no quantile to clip at; leave clip_quantile and clip_epsilon out.")
