"""Hints name extras of `pyproject.toml`, and a party looks for exactly what its extra installs."""

from __future__ import annotations

import re
import shlex
import tomllib
from importlib.metadata import PackageNotFoundError
from importlib.util import find_spec
from pathlib import Path

import pytest
import typer
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from features_party.integrations import tracking
from label_dp import installing
from label_dp.cli.startup import run
from label_dp.installing import OF_PARTY, missing_extra, pip_install, require_extra
from tests.architecture.test_packages import packages_of
from tests.integration.test_locks import installed, of_extras

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
    assert {extra for extra, _ in OF_PARTY.values()} <= set(EXTRAS)


def test_a_hint_is_a_command() -> None:
    assert shlex.split(pip_install("onnx")) == ["pip", "install", "label-dp-service[onnx]"]


@pytest.mark.parametrize("party", OF_PARTY)
def test_a_party_looks_for_all_that_its_extra_installs(party: str) -> None:
    extra, modules = OF_PARTY[party]
    here = [each for each in of_extras(extra) if each.marker is None or each.marker.evaluate()]
    assert set().union(*map(packages_of, modules)) == {canonicalize_name(each.name) for each in here}


@pytest.mark.parametrize("party", OF_PARTY)
def test_a_missing_package_is_named_by_its_extra(party: str, monkeypatch: pytest.MonkeyPatch) -> None:
    extra, modules = OF_PARTY[party]
    assert missing_extra(party) is None
    require_extra(party)
    monkeypatch.setattr(installing, "find_spec", lambda name: None if name == modules[-1] else find_spec(name))
    sentence = f"{party} needs the extra '{extra}': pip install 'label-dp-service[{extra}]'."
    assert missing_extra(party) == sentence
    with pytest.raises(ImportError, match=re.escape(sentence)):
        require_extra(party)


def test_a_command_without_its_extra_says_so_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(installing, "find_spec", lambda _: None)
    monkeypatch.setattr("sys.argv", ["labels-party"])
    app = typer.Typer(name="labels-party", pretty_exceptions_enable=False)

    @app.command()
    def draws() -> None:
        raise ModuleNotFoundError("No module named 'numba'", name="numba")

    with pytest.raises(SystemExit, match="2"):
        run(app)
    assert capsys.readouterr().err == f"error: {missing_extra('labels-party')}\n"


@pytest.mark.parametrize("with_code", [False, True])
def test_a_logged_model_asks_for_what_the_features_party_needs(
    with_code: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = [str(each) for each in installed()]
    for extra in ("labels", "features", "all", "onnx"):
        for each in of_extras(extra):  # as the metadata of a wheel has them
            marker = "" if each.marker is None else f"({each.marker}) and "
            listed.append(f"{each.name}{each.specifier}; {marker}extra == '{extra}'")
    monkeypatch.setattr(tracking, "requires", lambda _: listed)
    needed = [Requirement(each) for each in tracking._requirements(with_code)]
    if with_code:
        assert {(each.name, each.specifier) for each in needed} == {
            (each.name, each.specifier) for each in installed("features")
        }
        assert {str(each.marker) for each in needed} == {str(each.marker) for each in installed("features")}
    else:
        assert [(each.name, each.extras) for each in needed] == [("label-dp-service", {"features"})]


def test_a_checkout_that_was_never_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(_: str) -> list[str]:
        raise PackageNotFoundError

    monkeypatch.setattr(installing, "version", absent)
    assert pip_install("onnx") == "pip install '.[onnx]' in the project's folder"
