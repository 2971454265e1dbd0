"""Kinds that are found by the names of their modules, and loaded when they are looked up."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

from label_dp.documents.registry import KINDS as READ
from label_dp.named_modules import NamedModules
from labels_party.bootstrap import ANSWER_KINDS as COMPUTED
from labels_party.companions import kinds as computed

ONE = "from types import SimpleNamespace\nKIND = SimpleNamespace(name='{}')\n"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    folder = tmp_path / f"kinds_of_{tmp_path.name}"
    folder.mkdir()
    sources = {"__init__": "", "last_one": ONE.format("last-one"), "first": ONE.format("first"), "helper": "x = 1\n"}
    for name, source in sources.items():
        (folder / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    return importlib.import_module(folder.name)


def test_a_lookup_loads_its_module_alone(package: ModuleType) -> None:
    kinds = NamedModules[object](package.__name__)
    assert "last-one" in kinds
    assert [name for name in sys.modules if name.startswith(f"{package.__name__}.")] == [f"{package.__name__}.last_one"]
    for other in ("last_one", "helper", "os", "..first", "first.", ""):
        assert other not in kinds, other
    assert list(kinds) == ["first", "last-one"]
    assert len(kinds) == 2


def test_a_kind_has_the_name_of_its_module(package: ModuleType) -> None:
    (Path(str(package.__path__[0])) / "other.py").write_text(ONE.format("another"))
    importlib.invalidate_caches()
    with pytest.raises(AssertionError, match="another"):
        list(NamedModules[object](package.__name__))


def test_what_is_computed_is_read() -> None:
    assert list(COMPUTED) == list(READ)
    assert len(COMPUTED) >= 5
    assert Path(str(computed.__file__)).with_name("median.py").exists()
