"""Services of the companions, built on demand from those of the core."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from labels_party.bootstrap import Services
    from labels_party.companions.kinds.answer import Parts
    from labels_party.companions.kinds.calibration.kind import CalibrationKind
    from labels_party.companions.kinds.feature_store import FeatureStore
    from labels_party.companions.kinds.prediction.predictors import Predictors
    from labels_party.companions.kinds.prediction.queries import Queries


class Companions:
    """Services of the companions."""

    def __init__(self, core: Services) -> None:
        self.core = core

    @property
    def calibration(self) -> CalibrationKind:
        from labels_party.companions.kinds.calibration.kind import CalibrationKind

        kind = self.core.work.kinds[CalibrationKind.name]
        assert isinstance(kind, CalibrationKind)
        return kind

    @cached_property
    def features(self) -> FeatureStore:
        from labels_party.companions.kinds.feature_store import FeatureStore

        return FeatureStore(self.core.database, self.core.batches, self.core.vault)

    @cached_property
    def parts(self) -> Parts:
        from labels_party.companions.kinds.answer import Parts

        return Parts(self.core.key, self.features, self.core.work, self.core.vault, self.core.secrets)

    @cached_property
    def predictors(self) -> Predictors:
        from labels_party.companions.kinds.prediction.predictors import Predictors

        core = self.core
        return Predictors(
            core.database, core.batches, core.ledger, core.vault, core.secrets, core.leases, self.features
        )

    @cached_property
    def queries(self) -> Queries:
        from labels_party.companions.kinds.prediction.queries import Queries

        return Queries(self.predictors, self.core.work, self.core.home)


def companions_of(services: Services) -> Companions:
    """Return the companions of `services`, by their type."""
    assert isinstance(services.companions, Companions)
    return services.companions
