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
EXTRAS = PROJECT["project"]["optional-dependencies"]
OWN = PROJECT["project"]["name"]
PARTIES = ("labels", "features")


def of_extras(*extras: str) -> list[Requirement]:
    """What `extras` install besides the plain dependencies, with the extras that they name."""
    found = [Requirement(each) for extra in extras for each in EXTRAS[extra]]
    inner = [of_extras(*each.extras) for each in found if each.name == OWN]
    return [each for each in found if each.name != OWN] + [each for part in inner for each in part]


def installed(*extras: str) -> list[Requirement]:
    """What a plain install with `extras` asks for."""
    return [*map(Requirement, PROJECT["project"]["dependencies"]), *of_extras(*extras)]


# what each lock is made of
LOCKS = {
    "labels-party": installed("labels", "postgres", "stores"),
    "features-party": installed("features", "postgres", "stores", "onnx"),
    "dev": installed("dev"),
    "test": installed("test"),
    "build": [*map(Requirement, PROJECT["build-system"]["requires"])],
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
    found = pins(name)
    for requirement in LOCKS[name]:
        package = canonicalize_name(requirement.name)
        assert package in found, f"{package}: run make lock"
        assert all(requirement.specifier.contains(version) for version in found[package]), package


@pytest.mark.parametrize("party", PARTIES)
def test_a_lock_has_nothing_that_only_the_other_party_uses(party: str) -> None:
    own, all_of_both = ({canonicalize_name(each.name) for each in installed(extra)} for extra in (party, "all"))
    assert all_of_both - own
    assert not (all_of_both - own) & set(pins(f"{party}-party")), "run make lock"


def test_parties_and_tests_agree_on_versions() -> None:
    dev = pins("dev")
    for name in ("labels-party", "features-party", "test"):
        differing = {p: (v, dev[p]) for p, v in pins(name).items() if p in dev and set(v) != set(dev[p])}
        assert not differing, "run make lock"


def test_locks_name_no_registry() -> None:
    for path in (ROOT / "deploy" / "locks").glob("*.txt"):
        assert "://" not in path.read_text(encoding="utf-8"), path
