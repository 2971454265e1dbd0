"""What code, tests and documents cite is in this repository: invariants by name, stops of the tour by function."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("shared", "labels_party", "features_party", "deploy", "tests", ".github")
GUIDES = ROOT / "deploy" / "guides"
CITED = re.compile(r"\b[Ii]nvariant\s+(?:of\s+)?`?([a-z]+(?:-[a-z]+)+)`?")
BY_NUMBER = re.compile(r"\b[Ii]nvariant\s+\d|\bDESIGN\b")
STOP = re.compile(r"^### (\d+)\. .*: \[`([\w.]+)`\]\(([^)]+)\)$", re.MULTILINE)
WORDS = re.compile(r"^\| (?!word |---)", re.MULTILINE)


def texts() -> Iterator[tuple[str, str]]:
    paths = [*ROOT.glob("*.*"), *(path for room in ROOMS for path in (ROOT / room).rglob("*"))]
    for path in sorted(paths):
        if path.suffix in (".py", ".md", ".toml") and "__pycache__" not in path.parts and path != Path(__file__):
            yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def section(title: str) -> str:
    design = (GUIDES / "design.md").read_text(encoding="utf-8")
    return design.split(f"\n## {title}\n")[1].split("\n## ")[0]


def invariants() -> set[str]:
    return set(re.findall(r"^### ([a-z-]+)$", section("Invariants"), re.MULTILINE))


def unresolved(text: str) -> list[str]:
    """Citations that lead nowhere."""
    joined = re.sub(r"\n\s*(?:#: ?|# )?", " ", text)  # a name may stand on the next line
    return [match[0] for match in BY_NUMBER.finditer(joined)] + [
        match[0] for match in CITED.finditer(joined) if match[1] not in invariants()
    ]


def functions(path: Path) -> set[str]:
    """`name` of each function and `Class.name` of each method of a file."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{below.name}" for below in node.body if isinstance(below, ast.FunctionDef)}
    return found


def stops() -> list[tuple[str, str, str]]:
    return STOP.findall((GUIDES / "tour.md").read_text(encoding="utf-8"))


def test_every_citation_of_an_invariant_resolves() -> None:
    assert {name: found for name, text in texts() if (found := unresolved(text))} == {}


def test_every_invariant_is_cited_by_code() -> None:
    cited = {match[1] for name, text in texts() if name.endswith(".py") for match in CITED.finditer(text)}
    assert invariants() - cited == set()


@pytest.mark.parametrize("text", ["(invariant 8)", "see DESIGN §4", "(invariant no-such-thing)", "invariant\nno-such"])
def test_the_check_sees_a_citation_that_leads_nowhere(text: str) -> None:
    assert unresolved(text)


def test_the_glossary_is_short_and_in_use() -> None:
    assert 20 <= len(WORDS.findall(section("Glossary"))) <= 40


def test_the_tour_has_twelve_stops_each_at_a_function() -> None:
    assert [int(number) for number, _, _ in stops()] == list(range(1, 13))
    missing = [name for _, name, link in stops() if name not in functions((GUIDES / link).resolve())]
    assert missing == []


def test_the_decisions_are_ten_to_fifteen_short_records() -> None:
    records = (GUIDES / "decisions.md").read_text(encoding="utf-8").split("\n## ")[1:]
    assert 10 <= len(records) <= 15
    assert [record.split("\n")[0] for record in records if len(record.strip().split("\n")) > 10] == []


def test_contributing_fits_a_first_day() -> None:
    assert len((ROOT / ".github" / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines()) <= 120
