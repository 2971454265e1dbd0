"""Test figures of many settings of one peer, each figure of the setting that is best for it: an oracle in its favour.

Whoever uses the peer has no test labels, so these figures are better than what it would reach.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata

from features_party.training.ranking import auc
from label_dp.domain import Domain
from tests.benchmarks.utility.training import poisson

FloatArray = npt.NDArray[np.float64]

HIGHER = ("auc", "accuracy", "macro_auc")  # of the others less is better
LEAST = 1e-6  # where probabilities are cut for their logarithms, as the service's own metrics do
CUTS = (LEAST, 1e-3, 1e-2)  # of a peer that was not made to predict probabilities
FLOORS = (LEAST, 0.1, 0.3)  # shares of the mean prediction: of a peer that may predict means below zero


def figures_of(domain: Domain) -> tuple[str, ...]:
    """What models of labels in this domain are judged by."""
    if domain.nominal:
        return ("accuracy", "log_loss", "macro_auc")
    if domain.k == 2:
        return ("auc", "log_loss")
    return ("mse", "poisson") if domain.values[0] >= 0.0 else ("mse",)


def macro_auc(predictions: FloatArray, truth: FloatArray) -> float:
    """Mean over the classes of the AUC of each against the rest, of probabilities float64[m, k] (Mann & Whitney)."""
    aucs = []
    for at in np.unique(truth.astype(np.int64)):
        own = truth == at
        ranks, hits = rankdata(predictions[:, at]), int(own.sum())
        if hits < len(truth):
            aucs.append((ranks[own].sum() - hits * (hits + 1) / 2) / (hits * (len(truth) - hits)))
    return float(np.mean(aucs)) if aucs else 0.5


def judge(domain: Domain, predictions: FloatArray, truth: FloatArray, cut: float = LEAST) -> dict[str, float]:
    """Of predictions float64[m], or float64[m, k] of k classes, and true labels float64[m]. `cut`: the least
    probability, or the least mean as a share of the mean prediction, that logarithms are taken of."""
    if domain.nominal:
        own = predictions[np.arange(len(truth)), truth.astype(np.int64)]
        right = predictions.argmax(axis=1) == truth
        log_loss = float(-np.log(np.maximum(own, cut)).mean())
        return {"accuracy": float(right.mean()), "log_loss": log_loss, "macro_auc": macro_auc(predictions, truth)}
    if domain.k == 2:
        p = np.clip(predictions, cut, 1.0 - cut)
        loss = -float(np.mean(truth * np.log(p) + (1.0 - truth) * np.log1p(-p)))
        return {"auc": auc(predictions, truth, np.arange(len(truth))).estimate, "log_loss": loss}
    inside = np.clip(predictions, domain.values[0], domain.values[-1])
    figures = {"mse": float(np.mean((inside - truth) ** 2))}
    if "poisson" in figures_of(domain):
        figures["poisson"] = poisson(np.maximum(inside, cut * float(inside.mean())), truth)
    return figures


@dataclass
class Best:
    """The best of each figure so far, and the setting that it is of."""

    domain: Domain
    truth: FloatArray
    figures: dict[str, float] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)

    def see(self, setting: str, predictions: FloatArray) -> None:
        for cut in CUTS if "log_loss" in figures_of(self.domain) else FLOORS:
            for name, value in judge(self.domain, predictions, self.truth, cut).items():
                known = self.figures.get(name)
                if known is None or (value > known if name in HIGHER else value < known):
                    self.figures[name], self.settings[name] = value, setting

    def as_json(self) -> dict[str, object]:
        return {**self.figures, "settings": dict(self.settings)}
