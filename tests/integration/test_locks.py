"""The locks of deploy/locks against pyproject.toml: all that is asked for, in versions that fit, by hashes."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PIN = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==(\S+)(?: ; (.*?))? \\$")
# what each lock is made of, and what only the other party uses
LOCKS = {
    "labels-party": (["postgres"], {"xgboost", "xgboost-cpu"}),
    "features-party": (["postgres", "onnx"], {"opendp"}),
    "dev": (["dev"], set()),
    "build": (None, set()),
}


def pins(name: str) -> dict[str, list[str]]:
    """The versions of each package in a lock, after checking that each has hashes."""
    found: dict[str, list[str]] = {}
    lines = (ROOT / "deploy" / "locks" / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines):
        match = PIN.match(line)
        if match is None:
            assert re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}(?: \\)?", line), line
            continue
        assert "--hash=sha256:" in lines[number + 1], line
        found.setdefault(canonicalize_name(match[1]), []).append(match[2])
    return found


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_has_what_is_asked_for(name: str) -> None:
    extras, absent = LOCKS[name]
    project = PROJECT["project"]
    asked = PROJECT["build-system"]["requires"] if extras is None else list(project["dependencies"])
    for extra in extras or []:
        asked += project["optional-dependencies"][extra]
    found = pins(name)
    assert not absent & set(found)
    for requirement in map(Requirement, asked):
        package = canonicalize_name(requirement.name)
        if package not in absent:
            assert package in found, f"{package}: run make lock"
            assert all(requirement.specifier.contains(version) for version in found[package]), package


def test_parties_and_tests_agree_on_versions() -> None:
    dev = pins("dev")
    for name in ("labels-party", "features-party"):
        differing = {p: (v, dev[p]) for p, v in pins(name).items() if p in dev and set(v) != set(dev[p])}
        assert not differing, "run make lock"


def test_locks_name_no_registry() -> None:
    for path in (ROOT / "deploy" / "locks").iterdir():
        assert "://" not in path.read_text(encoding="utf-8"), path
