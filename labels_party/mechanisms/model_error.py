"""The expected model error of `shared.model_error`, by which the labels party ranks mechanisms."""

from shared.model_error import EXPLAINED, RULE, best_outputs, model_error

__all__ = ["EXPLAINED", "RULE", "best_outputs", "model_error"]
