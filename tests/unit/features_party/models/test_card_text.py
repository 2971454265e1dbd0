"""A card as Markdown: members that are one, shares of dates, and numbers made of large categories."""

from __future__ import annotations

from typing import Any

from features_party.models.card_text import SHOWN_STATISTICS, features_section, members_text, statistics_text


def member(name: str, weight: float, trees: int | None = None) -> dict[str, Any]:
    return {"name": name, "weight": weight, "trees": trees}


def test_boosters_of_one_kind_are_shown_as_one_member() -> None:
    three = [member("trees", 0.2, 50)] * 3
    below, on_top = member("main effects", 0.0), member("trees on top", 0.4, 70)
    assert members_text(three) == "0.60 × trees (3 × 50)"
    assert members_text([below, *three, on_top]) == (
        "main effects (the base of others), 0.60 × trees (3 × 50), 0.40 × trees on top (70)"
    )
    assert (
        members_text([member("interactions", 0.5), member("trees", 0.5, 9)]) == "0.50 × interactions, 0.50 × trees (9)"
    )


def test_a_date_has_the_share_of_its_parts_and_the_tail_is_counted() -> None:
    statistics = [{"name": f"a|b: coordinate {at}", "column": "a|b"} for at in range(SHOWN_STATISTICS + 3)]
    card: dict[str, Any] = {
        "features": [
            {"name": "day", "kind": "date"},
            {"name": "x", "kind": "number"},
            {"name": "a|b", "kind": "category", "values": 70},
        ],
        "importance": {"a|b": 0.5, "day.days": 0.2, "a|b: coordinate 7": 0.15, "day.weekday": 0.1},
    }
    without = "\n".join(features_section(card | {"statistics": []}))
    assert "| day | date |  | 30.0% |" in without
    assert "| x | number |  |  |" in without
    assert "made, without labels" not in without
    text = "\n".join(features_section(card | {"statistics": statistics}))
    assert text.startswith(without)
    lines = text.removeprefix(without).split("\n")
    assert lines[2] == rf"{SHOWN_STATISTICS + 3} more numbers were made, without labels, of a\|b:"
    assert lines[6] == r"| a\|b: coordinate 7 | 15.0% |"
    assert "and 3 more; see card.json." in lines
    assert statistics_text(statistics).endswith("of a|b")  # as it is for a terminal
