"""Any list of names survives its one spelling, and both readers, ours and the standalone one, judge a list alike."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deploy.verify_standalone.domains import Domain as Standalone
from deploy.verify_standalone.refusal import RefusedError
from label_dp.domain import Domain
from label_dp.errors import InvalidDomain

words = st.one_of(
    st.text(min_size=0, max_size=8),
    st.sampled_from(["no", "yes", "nan", "1", "1_0", " a", "a ", "\u0661", "x" * 101, "\u2028", "é", "e\u0301"]),
    st.floats().map(str),
)


def ours(names: list[str]) -> Domain | None:
    try:
        return Domain.from_json({"names": names})
    except InvalidDomain:
        return None


def theirs(names: list[str]) -> Standalone | None:
    try:
        return Standalone({"names": names})
    except RefusedError:
        return None


@given(st.lists(words, max_size=6))
@settings(deadline=None, max_examples=500)
def test_two_readers_judge_names_alike(names: list[str]) -> None:
    mine, other = ours(names), theirs(names)
    assert (mine is None) == (other is None)
    if mine is not None and other is not None:
        spelled = mine.as_json()
        assert spelled == {"names": names}
        mine.check_spelling(json.loads(json.dumps(spelled)))
        assert Domain.from_json(spelled) == mine
        assert [mine.text(i) for i in range(mine.k)] == other.names
        assert [format(mine.value(i), "f") for i in range(mine.k)] == [other.text(i) for i in range(other.k)]
        assert mine.ends == other.ends


def test_the_judgement_can_fail() -> None:
    assert ours(["no", "yes"]) is not None
    assert ours(["no", "1"]) is None
    with pytest.raises(RefusedError):
        Standalone({"names": ["no", "1"]})
