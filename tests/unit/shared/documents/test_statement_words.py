"""The rule of thumb of a statement agrees with the worst-case odds that stand beside it."""

from __future__ import annotations

import math

import pytest

from label_dp.documents.statement_text import in_words
from label_dp.privacy import Epsilon


@pytest.mark.parametrize("epsilon", ["0.1", "0.5", "0.6", "1", "1.1", "2", "3", "3.1", "8"])
def test_words_do_not_play_down_what_a_reader_may_learn(epsilon: str) -> None:
    surest = 1 / (1 + math.exp(-float(epsilon)))  # from even odds
    words = in_words(Epsilon.parse(epsilon))
    assert ("says little" in words) == (surest < 0.63)
    assert ("weak hint" in words) == (0.63 <= surest < 0.74)
    assert ("strong hint" in words) == (0.74 <= surest < 0.955)
    assert ("comes close to telling" in words) == (surest >= 0.955)
