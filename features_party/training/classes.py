"""Labels that are classes without order: the values of a small domain, under the log loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from label_dp.domain import Domain
from label_dp.errors import InvalidLoss

FEWEST, MOST = 3, 100  # two values have a likelihood of their own


def class_names(domain: Domain) -> list[str]:
    """What the values of a domain are called, in their order: by their names, or by their numbers as they are
    written."""
    return [domain.text(at) for at in range(domain.k)]


def named_or_numbers(domain: Domain) -> npt.NDArray[Any]:
    """What stands for the values of a domain in predictions: names str[k] where it has them, or float64[k]."""
    return np.array(domain.names) if domain.names else domain.values


def are_classes(domain: Domain | None) -> bool:
    """Whether the log loss takes labels of this domain as classes. Raises InvalidLoss for a domain of another size
    than 2 to 100."""
    if domain is None or domain.k == 2:
        return False
    if not FEWEST <= domain.k <= MOST:
        raise InvalidLoss(
            f"The log loss needs a label domain of 2 to {MOST} values, and this one has {domain.k}; use another loss."
        )
    return True
