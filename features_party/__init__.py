"""Features party: receives private messages, joins them with its features and trains models.

from features_party import LabelDPRegressor, accept

model = LabelDPRegressor(messages=["message.parquet"], labels_key="signing.pub", id_column="click_id").fit(clicks)
labeled = accept("message.parquet", key="signing.pub").labeled(clicks, id="click_id")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from features_party.integrations.frames import LabelSource as LabelSource
    from features_party.integrations.frames import accept as accept
    from features_party.integrations.sklearn import LabelDPClassifier as LabelDPClassifier
    from features_party.integrations.sklearn import LabelDPRegressor as LabelDPRegressor

ESTIMATORS = ("LabelDPClassifier", "LabelDPRegressor")
__all__ = ["LabelDPClassifier", "LabelDPRegressor", "LabelSource", "accept"]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name in __all__:
        # imported at first use: a reader of one module does not load the learners
        module = "sklearn" if name in ESTIMATORS else "frames"
        return getattr(import_module(f"features_party.integrations.{module}"), name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
