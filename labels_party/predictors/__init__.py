"""Predictors: models of raw labels that stay here and answer single queries, each charged (private prediction)."""
