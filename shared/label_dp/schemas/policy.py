"""An organisation's policy: one reviewed file of what may be charged at all, and what is declared."""

from __future__ import annotations

from pydantic import Field

from label_dp.schemas.base import Ask, whole
from label_dp.schemas.numbers import Decimalish
from label_dp.schemas.population import People, Population


class PolicyCeilings(Ask):
    """What no owner's key can lift, over all populations; a member that is absent sets none."""

    epsilon_per_release: Decimalish | None = Field(default=None, description="Most ε of one charge.")
    epsilon_per_example: Decimalish | None = Field(default=None, description="Most ε of one example (of its batch).")
    epsilon_per_person_and_year: Decimalish | None = Field(
        default=None,
        description="Most ε that is charged for one person in a calendar year (UTC), over its population or its body "
        "of people; what is cancelled gives none of it back.",
    )
    delta_per_release: Decimalish | None = Field(default=None, description="Most δ of one charge.")
    four_eyes_above: Decimalish | None = Field(
        default=None, description="Above this ε a second person approves a charge, whatever the population says."
    )
    mechanisms: list[str] | None = Field(
        default=None,
        max_length=100,
        examples=[["auto", "rr-on-bins", "calibration"]],
        description="Mechanisms of messages and kinds of answers that may be charged; 'auto' chooses among all.",
    )


class PolicyAllowance(Ask):
    """What audiences may charge by themselves of each sealed batch of a population."""

    population: str = Field(max_length=200, description="Its name.")
    answer: str = Field(max_length=100, examples=["calibration"], description="Kind of answer.")
    epsilon: Decimalish = Field(description="Most ε of a batch for it; 0 ends it.")


class Policy(Ask):
    """Ceilings, bodies of people, populations with their event rules, audiences and retention, and allowances."""

    model_config = whole({"ceilings": {"epsilon_per_release": "1", "four_eyes_above": "0.5"}})

    ceilings: PolicyCeilings = Field(default=PolicyCeilings(), description="What holds for every charge.")
    people: list[People] = Field(default=[], max_length=1000, description="Bodies of people.")
    populations: list[Population] = Field(default=[], max_length=1000, description="Populations.")
    allowances: list[PolicyAllowance] = Field(default=[], max_length=1000, description="Allowances of audiences.")
