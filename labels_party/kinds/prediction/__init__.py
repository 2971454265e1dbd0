"""Predictors, which stay here, and predictions: a query is charged, drawn and answered in one transaction."""
