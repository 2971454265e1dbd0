"""Labels that are unordered classes: the values of a small domain, under the log loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from label_dp.domain import Domain
from label_dp.errors import InvalidLoss

FEWEST, MOST = 3, 100  # two values have a likelihood of their own


def class_names(domain: Domain) -> list[str]:
    """Name the values of a domain in their order: by their names, or by their numbers as written."""
    return [domain.text(at) for at in range(domain.k)]


def named_or_numbers(domain: Domain) -> npt.NDArray[Any]:
    """Return the labels of classes in predictions: names str[k] if the domain has them, else float64[k]."""
    return np.array(domain.names) if domain.names else domain.values


def are_classes(domain: Domain | None) -> bool:
    """Check whether the log loss treats labels of this domain as classes. Raises InvalidLoss for a domain outside 2 to
    100 values."""
    if domain is None or domain.k == 2:
        return False
    if not FEWEST <= domain.k <= MOST:
        raise InvalidLoss(
            f"The log loss needs a label domain of 2 to {MOST} values, and this one has {domain.k}; use another loss."
        )
    return True
