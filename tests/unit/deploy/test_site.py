from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "deploy" / "site"


class Loader(yaml.SafeLoader):
    """Reads mkdocs' own tags as nothing."""


Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)
CONFIG = yaml.load((FOLDER / "mkdocs.yml").read_text(encoding="utf-8"), Loader)


def entries(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    else:
        for each in nav.values() if isinstance(nav, dict) else nav:
            yield from entries(each)


IGNORED = {"work", "found", "data"}  # folders that git does not have
NAV = list(entries(CONFIG["nav"]))
MADE = {f"api/{page}.md" for page in CONFIG["extra"]["api"]} | {"demo/index.html"}


def test_every_document_is_in_the_navigation_once_and_nothing_else() -> None:
    rooms = ("deploy", "features_party", "labels_party", "shared", "tests")
    found = {
        *ROOT.glob("*.md"),
        *(ROOT / ".github").glob("*.md"),
        *(p for room in rooms for p in (ROOT / room).rglob("*.md")),
    }
    inside = [path.relative_to(ROOT) for path in found]
    listed = {path.as_posix() for path in inside if not IGNORED & set(path.parts)}
    assert len(listed) > 60
    assert sorted(listed - set(NAV)) == [], "add them to nav of deploy/site/mkdocs.yml"
    assert len(NAV) == len(set(NAV))
    sources = [entry.removeprefix("source/").removesuffix(".md") for entry in NAV if entry.startswith("source/")]
    others = [entry for entry in NAV if not entry.startswith("source/") and entry not in MADE]
    assert [path for path in (*sources, *others) if not (ROOT / path).exists()] == []
    assert set(NAV) >= MADE


def test_the_build_is_strict_and_takes_nothing_from_elsewhere() -> None:
    assert CONFIG["strict"]
    assert CONFIG["theme"]["font"] is False
    assert {*CONFIG["validation"]["links"].values(), *CONFIG["validation"]["nav"].values()} == {"warn"}
    assert (FOLDER / CONFIG["docs_dir"]).is_dir()
    assert [name for name in CONFIG["hooks"] if not (FOLDER / name).is_file()] == []
    # beside the text there is nothing to load: no address in the configuration
    assert "://" not in (FOLDER / "mkdocs.yml").read_text(encoding="utf-8")
    assert (FOLDER / CONFIG["site_dir"]).resolve().parent == ROOT / "dist"


@pytest.mark.parametrize("name", [name for names in CONFIG["extra"]["api"].values() for name in names])
def test_every_python_name_exists(name: str) -> None:
    module, _, attribute = name.rpartition(".")
    place = ROOT / ("shared" if name.startswith("label_dp") else "") / module.replace(".", "/")
    source = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    tree = ast.parse(source.read_text(encoding="utf-8"))
    bound = {each.name for each in ast.walk(tree) if isinstance(each, ast.ClassDef | ast.FunctionDef | ast.alias)}
    assert re.fullmatch(r"\w+", attribute)
    assert attribute in bound
