"""Words of texts such as product names: shared by values of a category, so that a rare value learns from similar ones.

A value's effect is Σ_w β_w over its words, β_w ~ (0, τ_w²), plus one of its own, (0, τ²). With noise σ² a row, the mean
of n_v rows has the variance τ² + σ²/n_v around the effect of its words, so these are the best linear prediction of the
means, by conjugate gradients. τ_w² is learned as all variances are (effects.py). The words of a value are in its name:
a fact about features, which costs no ε. Nothing is saved beside the effects.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

WORD = re.compile(r"\w+")
FEWEST_VALUES = 65  # fewer are split one at a time by trees
FEWEST_WORDS = 20  # in two values or more
USUAL = 1.5  # mean number of words of a value, from which its name is a text
MOST_WORDS = 20_000  # the most frequent ones
LEAST = 1e-9  # τ_w² in σ²
STEPS, SETTLED = 50, 1e-4


@dataclass(frozen=True)
class Words:
    """Incidence of words: `of` is sparse float64[places, words], 1 if the value at a place (0 for missing) has the
    word."""

    of: Any

    @classmethod
    def learn(cls, vocabulary: Sequence[str]) -> Words | None:
        """Learn the words; None if the values are not texts."""
        from scipy.sparse import csr_matrix

        if len(vocabulary) < FEWEST_VALUES:
            return None
        texts = [sorted(set(WORD.findall(value.lower()))) for value in vocabulary]
        counts = Counter(word for text in texts for word in text)
        if sum(map(len, texts)) < USUAL * len(texts):
            return None
        index = {word: at for at, (word, count) in enumerate(counts.most_common(MOST_WORDS)) if count > 1}
        if len(index) < FEWEST_WORDS:
            return None
        cells = [(place, index[word]) for place, text in enumerate(texts, 1) for word in text if word in index]
        rows, columns = zip(*cells, strict=True)
        return cls(csr_matrix((np.ones(len(cells)), (rows, columns)), shape=(len(texts) + 1, len(index))))

    @property
    def usual(self) -> float:
        """Mean number of words of a value."""
        return float(self.of.sum()) / float(self.of.shape[0])


@dataclass
class Named:
    """Effects of words under their variance τ_w², which is updated after each fit."""

    words: Words
    variance: float

    def fit(self, sums: npt.NDArray[Any], counts: npt.NDArray[Any], shrinkage: float, noise: float) -> FloatArray:
        """Predict each value from its words, float64[places].

        `shrinkage` is σ²/τ² of the values' own effects, `noise` σ²; `sums` and `counts` [places] are of residuals, in
        rows or in their weights.
        """
        from scipy.sparse import diags, eye
        from scipy.sparse.linalg import cg

        of = self.words.of
        precision = counts / (counts / shrinkage + 1.0) / noise
        means = np.divide(sums, counts, out=np.zeros(len(sums)), where=counts > 0.0)
        system = (of.T @ diags(precision) @ of + eye(of.shape[1]) / self.variance).tocsr()
        along = system.diagonal()
        solution, _ = cg(system, of.T @ (precision * means), rtol=SETTLED, maxiter=STEPS, M=diags(1.0 / along))
        learned = float(np.sum(1.0 - 1.0 / (along * self.variance)))
        self.variance = max(float(solution @ solution) / max(learned, 1e-12), LEAST * noise)
        return np.asarray(of @ solution, np.float64)


def learn_words(vocabularies: Sequence[Sequence[str]]) -> Mapping[int, Words]:
    """Learn the words by position of the categories whose values are texts."""
    learned = {at: Words.learn(vocabulary) for at, vocabulary in enumerate(vocabularies)}
    return {at: words for at, words in learned.items() if words is not None}
