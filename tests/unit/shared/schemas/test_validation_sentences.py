"""Refusals of requests and settings are sentences of ours: they name the rule, never a value or a checker's words."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any, Literal, get_args

import pytest
from pydantic import BaseModel, Field
from pydantic_core import core_schema

from features_party.settings import Settings as FeaturesSettings
from label_dp.domain import Domain
from label_dp.errors import InvalidDomain, InvalidEpsilon, InvalidRequest, InvalidSettings
from label_dp.numbers import SPELLING
from label_dp.privacy import Epsilon
from label_dp.schemas.validation import as_model, broken_rule
from labels_party.settings import Settings as LabelsSettings

SECRET = "+417"


class Asked(BaseModel):
    day: date | None = None
    count: Annotated[int, Field(ge=1, le=9, multiple_of=2)] = 2
    name: Annotated[str, Field(min_length=1, max_length=3, pattern="^[a-z]+$")] = "a"
    ids: Annotated[list[str], Field(min_length=2)] = ["a", "b"]
    kind: Literal["one", "two"] = "one"


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"day": "today"}, "The member 'day' must be a day, written as YYYY-MM-DD."),
    ({"day": "2026-01-01T10:00"}, "The member 'day' must be a day, written as YYYY-MM-DD."),
    ({"count": "0x1"}, f"The member 'count' must be a whole number such as 10, {SPELLING}."),
    ({"count": 3}, "The member 'count' must be a multiple of 2."),
    ({"count": 10}, "The member 'count' must be at most 9."),
    ({"name": ""}, "The member 'name' must not be empty."),
    ({"name": "AB"}, "The member 'name' has another form than this call takes."),
    ({"name": "abcd"}, "The member 'name' must have at most 3 characters."),
    ({"ids": ["a"]}, "The member 'ids' must have 2 entries or more."),
    ({"kind": "three"}, "The member 'kind' must be 'one' or 'two'."),
]


@pytest.mark.parametrize(("body", "sentence"), REFUSED)
def test_a_refused_member_is_told_by_its_rule(body: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        as_model(body, Asked)
    assert refused.value.detail == sentence


@pytest.mark.parametrize("kind", get_args(core_schema.ErrorType))
def test_no_kind_of_refusal_is_told_in_the_checkers_own_words(kind: str) -> None:
    context = {
        "gt": 1,
        "ge": 1,
        "lt": 1,
        "le": 1,
        "max_length": 2,
        "min_length": 2,
        "multiple_of": 2,
        "expected": "'x'",
    }
    told = broken_rule({"type": kind, "msg": f"Input should be something, {SECRET} is not", "ctx": context})
    assert not told.startswith(("Input", "Value"))
    assert "_" not in told
    assert told.split()[0] in ("must", "is", "has", SECRET)  # the last: what our own validators say after their comma


@pytest.mark.parametrize("given", ["+1", "01", " 1", "1_0", "1,5", "١"])
def test_a_number_in_another_spelling_is_told_how_one_is_written(given: str) -> None:
    with pytest.raises(InvalidEpsilon) as epsilon:
        Epsilon.parse(given)
    with pytest.raises(InvalidDomain) as domain:
        Domain.parse(f"0:{given}")
    for refused in (epsilon, domain):
        assert all(word in refused.value.detail for word in ("plus sign", "leading zeros", "blanks", "separators"))


@pytest.mark.parametrize(
    ("settings", "name", "value", "rule"),
    [
        (LabelsSettings, "LABELS_PARTY_PORT", SECRET, SPELLING),
        (LabelsSettings, "LABELS_PARTY_PORT", "70417", "must be at most 65535"),
        (LabelsSettings, "LABELS_PARTY_LOG_FORMAT", "417", "must be 'plain' or 'json'"),
        (LabelsSettings, "LABELS_PARTY_WORKER", "417", "must be true or false"),
        (FeaturesSettings, "FEATURES_PARTY_NAME", "", "must not be empty"),
        (FeaturesSettings, "FEATURES_PARTY_LABELS_URLS", "417", "list"),
        (FeaturesSettings, "FEATURES_PARTY_LABELS_URLS", '["ftp://417"]', "http(s)://host"),
    ],
)
def test_a_refused_setting_is_a_sentence_without_its_value(
    settings: Any, name: str, value: str, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(InvalidSettings) as refused:
        settings.load()
    assert refused.value.detail.startswith(f"The setting {name} ")
    assert rule in refused.value.detail
    assert "417" not in refused.value.detail
