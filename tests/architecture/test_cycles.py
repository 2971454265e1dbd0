"""No circle of imports anywhere, also inside packages: a module can be read, tested and moved after those it needs."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("shared/label_dp", "labels_party", "features_party", "deploy")


def modules(root: Path, *rooms: str) -> dict[str, Path]:
    """Every module by its dotted name; a package is its `__init__`."""
    found: dict[str, Path] = {}
    for room in rooms:
        for path in sorted((root / room).rglob("*.py")):
            parts = path.relative_to((root / room).parent).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(name: str, known: dict[str, Path]) -> Iterator[str]:
    """The known modules that a module imports, anywhere in it: at its top, inside functions, for types only."""
    package = name if known[name].name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(known[name].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            above = package.rsplit(".", node.level - 1)[0] if node.level else ""
            source = ".".join(part for part in (above, node.module) if part)
            for alias in node.names:
                wanted = f"{source}.{alias.name}"
                if wanted in known or source in known:
                    yield wanted if wanted in known else source


def circle(root: Path, *rooms: str) -> list[str]:
    """The modules of one circle, in order; none where there is no circle."""
    known = modules(root, *rooms)
    graph = {name: {n for n in imported(name, known) if n != name} for name in known}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return [str(name) for name in error.args[1]]
    return []


def test_no_circle_of_imports() -> None:
    assert circle(ROOT, *ROOMS) == []


@pytest.mark.parametrize(
    "late",
    ["from room.a import x", "def f():\n    from room.a import x", "def f():\n    import room.a", "from . import a"],
)
def test_a_planted_circle_is_found(late: str, tmp_path: Path) -> None:
    room = tmp_path / "room"
    room.mkdir()
    (room / "__init__.py").write_text("")
    (room / "a.py").write_text("from room import b\n")
    (room / "b.py").write_text("")
    assert circle(tmp_path, "room") == []
    (room / "b.py").write_text(late)
    assert sorted(set(circle(tmp_path, "room"))) == ["room.a", "room.b"]
