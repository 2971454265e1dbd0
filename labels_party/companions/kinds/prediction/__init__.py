"""Predictors, which stay here, and predictions: a query is charged, drawn and answered in one transaction."""

from labels_party.companions.kinds.prediction.kind import PredictionKind

KIND = PredictionKind
