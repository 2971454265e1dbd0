"""Summaries of a message or an answer, from its document alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from label_dp.schemas.json_types import JsonObject

if TYPE_CHECKING:
    from label_dp.documents.answer import Answer
    from label_dp.documents.manifest import Manifest


def described(body: Manifest | Answer) -> JsonObject:
    """Return the public members that messages and answers share."""
    return {
        "batch": body.batch,
        "population": body.population.id,
        "population_name": body.population.name,
        "label": body.population.label,
        "key_id": body.key_id,
        "created": body.created,
        "n": body.n,
        "epsilon": body.epsilon.as_signed(),
        # by the labels party's ledger when it signed this; later work adds to it
        "epsilon_spent": str(body.epsilon_spent),
        "epsilon_lifetime": str(body.epsilon_lifetime),
    }


def summary(body: Manifest | Answer) -> JsonObject:
    """Return the same members with audiences, domain, mechanism and unit."""
    return described(body) | {
        "audiences": list(body.audiences),
        "domain": str(body.domain),
        "mechanism": body.mechanism.name,
        "unit": body.unit_said,
    }
