"""Calibrations: scores of examples in, a private monotone map from score to label out."""

from labels_party.companions.kinds.calibration.kind import CalibrationKind

KIND = CalibrationKind
