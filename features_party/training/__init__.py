"""Feature encoding, the capacity rule and the two models. `fit` also takes true labels (noise_variance=0)."""

from features_party.training.fitting import fit
from features_party.training.model import TrainedModel

__all__ = ["TrainedModel", "fit"]
