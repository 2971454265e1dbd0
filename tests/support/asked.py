"""What is asked of a kind of answer, by the members of its schema, and what it plans."""

from __future__ import annotations

from typing import Any

from labels_party.kinds.calibration.kind import CalibrationWish
from labels_party.kinds.median import MedianWish
from labels_party.kinds.own_features import FeatureKind, Planned
from shared.documents.kinds.median import Median
from shared.domain import Domain
from shared.schemas.calibration import Calibration
from shared.service.validation import as_model


def median_wish(**members: Any) -> MedianWish:
    return MedianWish.parse(as_model(members, Median))


def calibration_wish(*, two: bool = False, options: dict[str, Any] | None = None, **members: Any) -> CalibrationWish:
    option = [f"{name}={value}" for name, value in (options or {}).items()]
    return CalibrationWish.parse(as_model(members | {"option": option}, Calibration).numbered(two=two))


def feature_wish(kind: type[FeatureKind[Any]], **members: Any) -> Any:
    """The population says nothing of it."""
    nothing: Any = None
    return kind.wish(nothing, as_model(members, kind.schema))


def planned(kind: type[FeatureKind[Any]], domain: Domain, n: int, **members: Any) -> Planned:
    return kind.planned(feature_wish(kind, **members), domain, n)
