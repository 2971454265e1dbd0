"""What is asked of a kind of answer, by the members of its schema, and what it plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from label_dp.companions.kinds.median import Median
from label_dp.domain import Domain
from label_dp.losses import MatrixLoss
from label_dp.privacy import Epsilon
from label_dp.schemas.calibration import Calibration
from label_dp.schemas.release import LossMatrix, Release
from label_dp.schemas.validation import as_model
from labels_party.companions.kinds.calibration.kind import CalibrationWish
from labels_party.companions.kinds.median import MedianWish
from labels_party.companions.kinds.own_features import FeatureKind, Planned
from labels_party.message.plan import GivenPrior, ReleaseRequest, loss_json


def release_wish(
    epsilon: Epsilon,
    mechanism: str = "auto",
    *,
    options: Mapping[str, Any] | None = None,
    clip_quantiles: Sequence[str] = (),
    clip_epsilon: Epsilon | None = None,
    given_prior: Any = None,
    carried_from: str | None = None,
    **members: Any,
) -> ReleaseRequest:
    """`options`: of the mechanism; `given_prior`: the probabilities of one that was carried over or declared."""
    found = {name: [*map(str, v)] if isinstance(v, tuple | list) else v for name, v in (options or {}).items()}
    if clip_quantiles:
        found |= {"clip_quantile": list(clip_quantiles), "clip_epsilon": str(clip_epsilon)}
    if isinstance(loss := members.get("loss"), MatrixLoss):
        members["loss"] = LossMatrix(**loss_json(loss))
    asked = Release(epsilon=str(epsilon), mechanism=mechanism, **found, **members)
    return ReleaseRequest(asked, None if given_prior is None else GivenPrior(given_prior, carried_from))


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
