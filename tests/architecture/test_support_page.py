"""The page that maps `tests/support` names every module, and none that is gone."""

from __future__ import annotations

import re
from pathlib import Path

SUPPORT = Path(__file__).parents[1] / "support"
MODULES = {path.stem for path in SUPPORT.glob("*.py")} - {"__init__"}
PAGE = (SUPPORT / "README.md").read_text(encoding="utf-8")


def test_the_page_names_every_module_and_stays_a_page() -> None:
    told = [name for line in PAGE.splitlines() if line.startswith("|") for name in re.findall(r"`(\w+)`", line)]
    assert sorted(set(told) - {"make"} - MODULES) == []
    assert sorted(MODULES - set(told)) == []
    assert len(PAGE.splitlines()) <= 60


def test_somebody_uses_every_module() -> None:
    sources = {path: path.read_text(encoding="utf-8") for path in SUPPORT.parent.rglob("*.py")}
    imports = re.compile(r"^from tests\.support(?:\.(\w+) import|\s+import (.+)$)", re.MULTILINE)
    used = set[str]()
    for path, text in sources.items():
        names = {word for one, several in imports.findall(text) for word in re.findall(r"\w+", one or several)}
        used |= names - {path.stem if path.parent == SUPPORT else ""}
    assert sorted(MODULES - used) == []
