"""The kinds of answers there are; one entry each, and nothing else needs to know of a new one."""

from __future__ import annotations

from labels_party.answers.calibrations import CalibrationKind
from labels_party.answers.kind import AnswerKind
from labels_party.answers.medians import MedianKind
from labels_party.storage.secrets import Secrets


def answer_kinds(secrets: Secrets) -> list[AnswerKind]:
    """`secrets` gives the keys under which ids are compared."""
    return [CalibrationKind(secrets), MedianKind()]
