"""The rooms of the project stay what they are: import contracts, the top level, purity, sizes, names of tests."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("shared", "labels_party", "features_party", "deploy")
AS_INSTALLED = {"shared": "shared/label_dp"}  # folders whose package has another name
TOP_LEVEL = {
    "pyproject.toml",
    "README.md",
    "labels_party",
    "features_party",
    "shared",
    "tests",
    "deploy",
    "docker-compose.yml",
    "Makefile",
    "LICENSE",
    "CHANGELOG.md",
}


def sources(*rooms: str) -> Iterator[Path]:
    for room in rooms:
        yield from (ROOT / room).rglob("*.py")


def imports(path: Path) -> set[str]:
    """Top-level names of every module a file imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


@pytest.mark.processes
def test_the_top_level_has_nothing_else() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if tracked.returncode:  # an unpacked archive has no index
        names = {p.name for p in ROOT.iterdir()} - {"demo-output", "dist"}
    else:
        names = {line.split("/")[0] for line in tracked.stdout.splitlines()}
    assert {n for n in names if not n.startswith(".")} <= TOP_LEVEL


def test_every_folder_of_unit_tests_is_a_room() -> None:
    """Of the product, or of what tests stand on."""
    unit = ROOT / "tests" / "unit"
    folders = {path.parent.relative_to(unit) for path in unit.rglob("*.py") if path.parent != unit}
    rooms = {folder: ROOT / AS_INSTALLED.get(folder.parts[0], folder.parts[0]) for folder in folders}
    mirrored = {folder: room.joinpath(*folder.parts[1:]) for folder, room in rooms.items()}
    assert {str(folder) for folder, room in mirrored.items() if not any(room.glob("*.py"))} == set()
    assert [path.name for path in unit.glob("*.py")] == ["__init__.py"]


@pytest.mark.parametrize("room", ROOMS)
def test_files_stay_small(room: str) -> None:
    lines = {str(p.relative_to(ROOT)): len(p.read_text("utf-8").splitlines()) for p in sources(room)}
    assert {name: n for name, n in lines.items() if n > 500} == {}


def long_test_names(source: str) -> list[str]:
    names = [node.name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    return [name for name in names if name.startswith("test_") and len(name) > 70]


def test_names_of_tests_stay_short() -> None:
    assert [name for path in sources("tests") for name in long_test_names(path.read_text("utf-8"))] == []


def test_control_a_longer_name_of_a_test_is_seen() -> None:
    names = ["test_" + "x" * (length - 5) for length in (70, 71)]
    assert long_test_names("".join(f"def {name}(): ...\n" for name in names)) == names[1:]


def test_only_entropy_touches_randomness_and_nothing_in_mechanisms_does_io() -> None:
    forbidden = {"os", "secrets", "random", "time", "logging", "pathlib", "socket", "datetime"}
    for path in sources("labels_party/mechanisms"):
        allowed = {"os"} if path.name == "entropy.py" else set()
        assert not {name.split(".")[0] for name in imports(path)} & forbidden - allowed, path


def test_no_numpy_generator_outside_the_demo() -> None:
    """Noise comes from `entropy` alone; a seeded generator anywhere near it would be a hole."""
    for path in sources("labels_party", "shared"):
        text = path.read_text(encoding="utf-8")
        assert "np.random" not in text, path
        assert "default_rng" not in text, path


@pytest.mark.parametrize("room", ["labels_party", "features_party"])
def test_settings_are_read_in_one_place(room: str) -> None:
    for path in sources(room):
        if path.name == "settings.py":
            continue
        text = path.read_text(encoding="utf-8").replace('os.environ.setdefault("OMP_WAIT_POLICY"', "")
        assert "os.environ" not in text, path
        assert "getenv" not in text, path
        if "Settings.load" in text:
            assert path.name == "bootstrap.py", path


def test_every_ruff_exception_gives_its_reason() -> None:
    for path in sources(*ROOMS, "tests"):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            for mark in ("# noqa:", "# type: ignore["):
                if mark in line and "test_rooms" not in path.name:
                    rest = line.split(mark, 1)[1]
                    assert " - " in rest or "# " in rest, f"{path.relative_to(ROOT)}:{number} has no reason"


def test_no_machine_path_or_tool_of_one_workplace() -> None:
    import re

    pattern = re.compile(r"(^|[^A-Za-z0-9_.])/(work|farm|root)/")
    for path in [*sources(*ROOMS, "tests"), *ROOT.rglob("*.md"), ROOT / "Makefile", ROOT / "pyproject.toml"]:
        if ".venv" not in path.parts and "test_rooms" not in path.name:
            assert not pattern.search(path.read_text(encoding="utf-8")), path
