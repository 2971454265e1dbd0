"""The kinds of answers there are; one entry each, and nothing else needs to know of a new one."""

from __future__ import annotations

from labels_party.answers.calibrations import CalibrationKind
from labels_party.answers.kind import AnswerKind
from labels_party.answers.linear_models import LinearModelKind
from labels_party.answers.medians import MedianKind
from labels_party.answers.rectangles import RectangleKind
from labels_party.predictors.features import FeatureStore
from labels_party.storage.secrets import Secrets


def answer_kinds(secrets: Secrets, features: FeatureStore) -> list[AnswerKind]:
    """`secrets` gives the keys under which ids are compared, `features` the owner's own of a batch's examples."""
    return [CalibrationKind(secrets), MedianKind(), RectangleKind(features), LinearModelKind(features)]
