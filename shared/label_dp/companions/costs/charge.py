"""A check that a signed answer states the cost of its public parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from label_dp.companions.costs.slices import Cost
from label_dp.errors import MalformedAnswer

if TYPE_CHECKING:
    from label_dp.documents.answer import Answer


def check_charge(answer: Answer, cost: Cost, adjacency: str) -> None:
    """Check that an answer states exactly the cost of its public parameters, for the neighbours of its kind.

    Raises MalformedAnswer.
    """
    if answer.epsilon != cost.split():
        raise MalformedAnswer("its ε and δ are not what its parameters cost.")
    if answer.adjacency != adjacency:
        raise MalformedAnswer("neighbouring data sets are others than those of its kind.")
