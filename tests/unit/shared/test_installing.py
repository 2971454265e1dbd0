"""Hints name requirements as `pyproject.toml` has them, for every extra that the code speaks of."""

from __future__ import annotations

import re
import shlex
import tomllib
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from label_dp import installing
from label_dp.installing import pip_install

ROOT = Path(__file__).parents[3]
EXTRAS: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"][
    "optional-dependencies"
]
SOURCES = [
    path.read_text("utf-8")
    for room in ("shared", "features_party", "labels_party")
    for path in (ROOT / room).rglob("*.py")
]
NAMED = {name for text in SOURCES for name in re.findall(r"pip_install\([\"'](\w+)[\"']\)", text)}


def test_the_code_speaks_of_extras_that_exist() -> None:
    assert {"torch", "onnx", "sklearn"} <= NAMED <= set(EXTRAS)
    assert not any("label-dp-service[" in text for text in SOURCES)


@pytest.mark.parametrize("extra", sorted(NAMED))
def test_a_hint_names_what_the_extra_needs(extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = [f"{name} ; extra == '{which}'" for which, names in EXTRAS.items() for name in names]
    monkeypatch.setattr(installing, "requires", lambda _: ["numpy>=1.26", *listed])
    assert shlex.split(pip_install(extra)) == ["pip", "install", *EXTRAS[extra]]


def test_a_checkout_that_was_never_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(_: str) -> list[str]:
        raise PackageNotFoundError

    monkeypatch.setattr(installing, "requires", absent)
    assert pip_install("onnx") == "pip install '.[onnx]' in the project's folder"
