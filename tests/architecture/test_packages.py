"""No import of a package that the lock does not name; each party alone with the packages of its own lock, and a plain
install with its own."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from functools import cache
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.integration.test_locks import EXTRAS, PROJECT, installed, of_extras, pins

ROOT = Path(__file__).parents[2]
WHEEL = [ROOT / each for each in PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]]
COMMON = [each for each in WHEEL if not each.name.endswith("_party")]
PARTIES = {f"{side}-party": [*COMMON, ROOT / f"{side}_party"] for side in ("labels", "features")}
OWN = {each.name for each in WHEEL}
# what neither a party nor a test needs: for users who ask for it
ASKED_FOR = set(EXTRAS) - {"labels", "features", "all", "service", "test", "dev", "measures", "site"}
OPTIONAL = {canonicalize_name(each.name) for each in of_extras(*ASKED_FOR)}
# where a package is not installed, or comes under several names
IMPORTED_AS = {"sklearn": "scikit-learn", "mlflow": "mlflow-skinny"}
# imports as if nothing but a lock were installed
BLOCK = """
import importlib, importlib.metadata, json, pkgutil, sys
blocked, optional, rooms = (set(each) for each in json.loads(sys.argv[1]))

class Blocked:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top in blocked:
            raise ModuleNotFoundError(f"{name} is not in the lock of this party", name=top)

sys.meta_path.insert(0, Blocked())
"""
# every module of a party; then its application, and the help of its command
ALONE = f"""{BLOCK}
left = []
for room in sorted(rooms):
    package = importlib.import_module(room)
    for module in pkgutil.walk_packages(package.__path__, room + "."):
        if ".migrations." in module.name or module.name.endswith("__main__"):
            continue
        try:
            importlib.import_module(module.name)
        except ImportError as missing:
            if missing.name not in optional and "pip install" not in str(missing):
                raise
            left.append(module.name)
party = next(room for room in rooms if room.endswith("_party"))
services = importlib.import_module(party + ".bootstrap").bootstrap()
app = importlib.import_module(party + ".api.app").create_app(services)
assert app.openapi()["paths"]
sys.argv = [party, "--help"]
try:
    importlib.import_module(party + ".cli").main()
except SystemExit as ended:
    assert not ended.code
print(json.dumps(sorted(left)), file=sys.stderr)
"""
# what a plain install offers: every module of these rooms, and a command
PLAIN = f"""{BLOCK}
for room in sorted(rooms):
    package = importlib.import_module(room)
    for module in pkgutil.walk_packages(getattr(package, "__path__", []), room + "."):
        importlib.import_module(module.name)
folder = "tests/wire/v1"
sys.argv = ["features-party", "verify", folder + "/message.parquet", "--labels-key", folder + "/signing.pub"]
importlib.import_module("features_party.cli").main()
"""
OFFERED = (
    "label_dp.documents", "label_dp.channels", "label_dp.client", "labels_party.client", "features_party.client",
    "features_party.receive.pull", "features_party.receive.labels_service", "features_party.training.correction",
    "labels_party.cli", "features_party.cli",
)  # fmt: skip


@cache
def distributions() -> dict[str, set[str]]:
    """The packages of this environment that a name is imported from."""
    return {name: {canonicalize_name(each) for each in found} for name, found in packages_distributions().items()}


def packages_of(name: str) -> set[str]:
    return distributions().get(name) or {canonicalize_name(IMPORTED_AS.get(name, name))}


def imported(package: Path) -> dict[str, str]:
    """Top-level names that a package of ours imports anywhere, each with a file that does."""
    found: dict[str, str] = {}
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            else:
                continue
            for name in names:
                found.setdefault(name.partition(".")[0], str(path.relative_to(ROOT)))
    return {name: path for name, path in found.items() if name not in OWN | set(sys.stdlib_module_names)}


@pytest.mark.extended  # packages that are not installed cannot be asked what is imported from them
@pytest.mark.parametrize("party", PARTIES)
def test_a_party_imports_what_its_lock_names(party: str) -> None:
    locked = set(pins(party))
    for package in PARTIES[party]:
        for name, path in imported(package).items():
            assert packages_of(name) & (locked | OPTIONAL), f"{path} imports {name}, which no lock of {party} names"


def alone(party: str, program: str, rooms: list[str], home: Path) -> subprocess.CompletedProcess[str]:
    """Run a program with our `rooms` and the packages of the lock of a party; it must succeed."""
    variable = f"{party.upper().replace('-', '_')}_HOME"
    return with_packages(set(pins(party)), program, rooms, {variable: str(home / "home")})


def with_packages(
    allowed: set[str], program: str, rooms: list[str], environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a program as if nothing but `allowed` and our own packages were installed; it must succeed."""
    blocked = [
        name for name, packages in distributions().items() if not packages & allowed and name not in OWN | {"deploy"}
    ]
    optional = [name for name, packages in distributions().items() if packages & OPTIONAL] + sorted(OPTIONAL)
    done = subprocess.run(
        [sys.executable, "-c", program, json.dumps([blocked, optional, rooms])],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.processes
@pytest.mark.parametrize("party", PARTIES)
def test_a_party_needs_nothing_but_its_lock(party: str, tmp_path: Path) -> None:
    done = alone(party, ALONE, [package.name for package in PARTIES[party]], tmp_path)
    assert "Usage" in done.stdout
    left = json.loads(done.stderr.splitlines()[-1])
    # all but what is asked for with an extra
    assert len(left) < 10, left


@pytest.mark.processes
def test_the_demo_needs_nothing_but_the_lock_of_its_image(tmp_path: Path) -> None:
    """Its image is that of the features party, in which the labels party's client lies too."""
    program = f"{BLOCK}\nimport deploy.demo.ending, deploy.demo.story"
    alone("features-party", program, [*OWN, "deploy"], tmp_path)


@pytest.mark.processes
def test_a_plain_install_reads_verifies_corrects_and_calls(tmp_path: Path) -> None:
    plain = closure(*installed())
    assert not plain & {canonicalize_name(each.name) for each in of_extras("all")}
    done = with_packages(plain, PLAIN, [*OFFERED], {"FEATURES_PARTY_HOME": str(tmp_path / "home")})
    assert "Verified message" in done.stdout


def closure(*needed: Requirement) -> set[str]:
    """The packages that these install, with all that they need."""
    found: set[str] = set()
    waiting = [*needed]
    while waiting:
        name = canonicalize_name(waiting.pop().name)
        if name not in found:
            found.add(name)
            inner = [Requirement(each) for each in requires(name) or []]
            waiting += [each for each in inner if each.marker is None or each.marker.evaluate({"extra": ""})]
    return found
