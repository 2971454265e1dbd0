"""Words of texts in effects of categories, and two columns that say the same."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from features_party.training import effects
from features_party.training.effects import Effects, fit_effects
from features_party.training.words import Words, learn_words

FloatArray = npt.NDArray[np.float64]
VALUES, ROWS = 400, 4000
COLOURS = [f"colour{at}" for at in range(12)]
KINDS = [f"kind{at}" for at in range(15)]


def names(seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    return [f"{rng.choice(COLOURS).upper()} {rng.choice(KINDS)}, no-{at}" for at in range(VALUES)]


def drawn(vocabulary: list[str], noise: float) -> tuple[npt.NDArray[np.int32], FloatArray, FloatArray]:
    """Codes int32[n, 1], labels with noise, and the effect of each value, which is that of its words."""
    rng = np.random.default_rng(5)
    of_word = {word: rng.normal() for word in (*COLOURS, *KINDS)}
    truth = np.array([sum(of_word.get(w.strip(",").lower(), 0.0) for w in name.split()) for name in vocabulary])
    codes = rng.integers(0, VALUES, (ROWS, 1)).astype(np.int32)
    return codes, truth[codes[:, 0]] + noise * rng.normal(size=ROWS), truth


def off(found: Effects, truth: FloatArray) -> float:
    """Mean squared error of the effects about their mean."""
    return float(np.mean((found.tables[0][1:] - (truth - truth.mean())) ** 2))


def test_values_of_few_rows_learn_from_their_words() -> None:
    """Ten rows a value and noise of four times the signal. Other names of the same values are the control."""
    vocabulary = names(1)
    codes, labels, truth = drawn(vocabulary, 3.0)
    alone = off(fit_effects(codes, labels, [VALUES + 1]), truth)
    with_words = off(fit_effects(codes, labels, [VALUES + 1], words=learn_words([vocabulary])), truth)
    others = off(fit_effects(codes, labels, [VALUES + 1], words=learn_words([names(2)])), truth)
    assert with_words < 0.5 * alone
    assert others > 0.9 * alone
    assert others < 1.1 * alone


def test_two_columns_that_say_the_same_say_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control has variances that do not follow the joint effects: each column is believed as if it stood alone."""
    codes, labels, truth = drawn(names(1), 6.0)
    one = off(fit_effects(codes, labels, [VALUES + 1]), truth)

    def twice() -> float:
        both = fit_effects(np.repeat(codes, 2, axis=1), labels, [VALUES + 1] * 2)
        return off(Effects((both.tables[0] + both.tables[1],)), truth)

    assert twice() < 1.05 * one
    monkeypatch.setattr(effects, "ALONE", effects.ROUNDS)
    assert twice() > 1.1 * one


def test_words_of_weighted_rows() -> None:
    """A row of weight two says what two rows of the same label say."""
    vocabulary = names(1)
    codes, labels, truth = drawn(vocabulary, 1.0)
    weights = np.where(np.arange(ROWS) % 2 == 0, 1.5, 0.5)
    noisy = np.where(weights > 1.0, labels, labels + 3.0 * np.random.default_rng(8).normal(size=ROWS))
    words = learn_words([vocabulary])
    plain = off(fit_effects(codes, noisy, [VALUES + 1], words=words), truth)
    assert off(fit_effects(codes, noisy, [VALUES + 1], weights=weights, words=words), truth) < plain


def test_which_vocabularies_are_texts() -> None:
    found = learn_words([names(1), [f"id{at}" for at in range(VALUES)], names(1)[:20], COLOURS])
    assert list(found) == [0]
    words = found[0]
    assert words.of.shape == (VALUES + 1, len(COLOURS) + len(KINDS) + 1)  # "no" is a word, a number of one value is not
    assert words.of[0].nnz == 0
    assert words.usual == pytest.approx(3.0, rel=0.01)
    assert Words.learn([f"one two {at}" for at in range(100)]) is None  # two words that all have are too few
