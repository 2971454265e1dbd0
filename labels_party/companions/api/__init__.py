"""Calls of the companions besides those that every kind of answer has."""

from __future__ import annotations

from labels_party.companions.api import calibrations, predictors, sums

ROUTERS = (calibrations.router, predictors.router, sums.router)
DEPENDS_ON_LABELS = frozenset(
    {
        "/v1/batches/{batch}/calibrations",
        "/v1/batches/{batch}/calibration-allowance",
        "/v1/batches/{batch}/sums-of-table",
        "/v1/batches/{batch}/sums-allowance",
        "/v1/predictors",
    }
)
