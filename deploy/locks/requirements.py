"""Requirements of a party: the project's dependencies but those that only the other party uses.

python -m deploy.locks.requirements labels-party postgres      # a party and its extras, one requirement a line
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
NAME = re.compile(r"[\w.-]+")


def name_of(requirement: str) -> str:
    """The package that a requirement asks for."""
    found = NAME.match(requirement)
    assert found, requirement
    return found[0]


def of_others(party: str) -> set[str]:
    """Dependencies of the project that `party` has no use for. Raises KeyError for a party that there is not."""
    with PYPROJECT.open("rb") as file:
        only: dict[str, list[str]] = tomllib.load(file)["tool"]["label-dp"]["only"]
    del only[party]
    return {name for names in only.values() for name in names}


def of_party(party: str, *extras: str) -> list[str]:
    """The requirements of `party` with `extras` of the project."""
    with PYPROJECT.open("rb") as file:
        project = tomllib.load(file)["project"]
    absent = of_others(party)
    asked: list[str] = [each for each in project["dependencies"] if name_of(each) not in absent]
    return asked + [each for extra in extras for each in project["optional-dependencies"][extra]]


if __name__ == "__main__":
    sys.stdout.write("\n".join(of_party(*sys.argv[1:])) + "\n")
