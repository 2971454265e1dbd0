"""The size of a model that the labels support: one rule in the number of rows and the noise variance.

    signal share   s     = 1 − noise variance / Var(z)     z: corrected labels, as trained on
                         below f = max(0.005, √(2/n)) Var(z) cannot distinguish s from 0, and s is the smaller
                         of f and range²/(12 Var(z)), as for labels spread evenly over their domain; never more
                         than range²/(4 Var(z)), since no label in a domain of this range varies more
    effective rows n_eff = n · s                           noiseless rows of equal information

    depth            = (log₂ n_eff − 3)/2, rounded, from 2 to 8
    learning rate    = 0.05 · (n_eff/20 000)^0.3, from 0.05 to 0.1
    rounds           = 150 · (n_eff/2000)^0.25, from 20 to 600
    rows per leaf    = 10/s          a leaf's mean has the same relative error whatever the noise
    λ of the leaves  = 7/s           in rows, so a leaf's step is shrunk by the same share
    subsample 0.7 of the rows and 0.5 of the columns per tree; 64 bins of a feature below n_eff = 20 000, else 256

    ridge λ of the linear model: empirical Bayes on the same labels (training/linear.py)

The noise variance comes from the manifest's channel, averaged over its private prior, and Var(z) from the message. Both
are already private, so the rule costs no ε and holds for every channel. It does not look at errors: choosing by error
on held-out privatized labels would need an unbiased channel.
"""

from __future__ import annotations

import math
from typing import Any

from pydantic import BaseModel, ConfigDict, computed_field

from label_dp.schemas.json_types import JsonObject

FLOOR = 0.005
SMALLEST = 1e-9  # keeps the figures finite if a domain has one value or ε is tiny


class Capacity(BaseModel):
    """Model size chosen by the rule. `signal_share` is s, `effective_rows` n_eff; the rest is in the units of the rule
    above."""

    model_config = ConfigDict(frozen=True, strict=True, allow_inf_nan=False)

    rows: int
    noise_variance: float
    label_variance: float
    signal_share: float
    effective_rows: float
    depth: int
    rounds: int
    learning_rate: float
    rows_per_leaf: float
    leaf_penalty: float
    subsample: float
    columns_per_tree: float
    max_bins: int

    @computed_field  # type: ignore[prop-decorator]  # mypy knows no decorated properties
    @property
    def why(self) -> str:
        return (
            f"{self.rows:,} rows with noise variance {self.noise_variance:.6g} in a label variance of "
            f"{self.label_variance:.6g} say as much as {self.effective_rows:,.0f} rows without noise"
        )

    def scaled(self, factor: float) -> Capacity:
        """Return the capacity for `factor` times the effective rows, to try several by hand."""
        return _sized(
            self.rows,
            self.noise_variance,
            self.label_variance,
            min(self.signal_share * factor, 1.0),
            self.effective_rows * factor,
        )

    def as_json(self) -> JsonObject:
        return self.model_dump()

    @classmethod
    def from_json(cls, data: Any) -> Capacity:
        """Parse the output of `as_json`. Raises ValueError for anything else."""
        return cls.model_validate(data)


def choose_capacity(
    rows: int, label_variance: float, noise_variance: float, domain_range: float = math.inf
) -> Capacity:
    """Choose the capacity by the rule above.

    `label_variance` is the variance of the labels as trained on, noise included; `domain_range` is the distance between
    the ends of the label domain.
    """
    floor = min(1.0, max(FLOOR, math.sqrt(2.0 / max(rows, 1))))
    if noise_variance <= 0.0:
        share = 1.0
    elif label_variance <= 0.0:
        share = floor
    else:
        squared_range = domain_range * domain_range / label_variance
        share = 1.0 - noise_variance / label_variance
        share = share if share >= floor else min(floor, squared_range / 12.0)
        share = max(min(share, squared_range / 4.0), SMALLEST)
    return _sized(rows, noise_variance, label_variance, share, rows * share)


def _sized(rows: int, noise_variance: float, label_variance: float, share: float, effective: float) -> Capacity:
    depth = round((math.log2(max(effective, 1.0)) - 3.0) / 2.0)
    return Capacity(
        rows=rows,
        noise_variance=noise_variance,
        label_variance=label_variance,
        signal_share=share,
        effective_rows=effective,
        depth=min(max(depth, 2), 8),
        rounds=min(max(round(150.0 * (effective / 2000.0) ** 0.25), 20), 600),
        learning_rate=min(max(0.05 * (effective / 20_000.0) ** 0.3, 0.05), 0.1),
        rows_per_leaf=10.0 / share,
        leaf_penalty=7.0 / share,
        subsample=0.7,
        columns_per_tree=0.5,
        max_bins=64 if effective < 20_000 else 256,
    )
