"""Every file of deploy/ is used by a test: one that names it, or one that takes its whole folder by a rule below."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# files by a pattern; the test, or its support, that takes all of them; and what it has in its text to do so
RULES = (
    ("demo/*.py", "tests/support/demo.py", '"deploy.demo"'),
    ("images/*.py", "tests/integration/test_deploy_scripts.py", "deploy.images.engine"),
    ("verify_standalone/*.py", "tests/wire/test_standalone_verifier.py", "verify_standalone"),
    ("guides/*.md", "tests/e2e/test_readme.py", 'GUIDES.glob("*.md")'),
    ("guides/notebooks/*.ipynb", "tests/e2e/test_notebooks.py", "*.ipynb"),
    ("guides/pictures/*.png", "tests/architecture/test_deploy.py", '"*.png"'),
    ("kubernetes/*/*.yaml", "tests/integration/test_kubernetes.py", "FOLDER.iterdir()"),
    ("locks/*.txt", "tests/integration/test_locks.py", '"locks" / f"{name}.txt"'),
    ("locks/*.py", "tests/unit/deploy/test_vulnerabilities.py", "deploy.locks.vulnerabilities"),
    ("packages.py", "tests/distribution/__main__.py", "deploy.packages"),
    ("signing/*.py", "tests/unit/deploy/test_signing.py", "deploy.signing.__main__"),
    ("site/*", "tests/unit/deploy/test_site.py", '"deploy" / "site"'),
    ("*.Dockerfile", "tests/integration/test_deploy_files.py", ".Dockerfile"),
    ("*.Dockerfile.dockerignore", "tests/integration/test_deploy_files.py", ".dockerignore"),
    ("*.env.example", "tests/integration/test_deploy_files.py", ".env.example"),
    ("README.md", "tests/e2e/test_readme.py", '"deploy"'),
)


def files() -> list[Path]:
    """What git has of the folder; in an unpacked archive, what lies there."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "deploy"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    found = [ROOT / name for name in listed.stdout.splitlines()] or list((ROOT / "deploy").rglob("*"))
    return [path for path in found if path.is_file() and "__pycache__" not in path.parts and path.stat().st_size]


def ruled(path: Path) -> bool:
    return any(path in set((ROOT / "deploy").glob(pattern)) for pattern, _, _ in RULES)


def text_of_tests(*without: str) -> str:
    sources = [path for path in (ROOT / "tests").rglob("*.py") if path.name not in without]
    return "\n".join(path.read_text(encoding="utf-8") for path in sources)


@pytest.mark.processes
def test_every_file_is_named_by_a_test() -> None:
    found, text = files(), text_of_tests(Path(__file__).name)
    assert len(found) > 80
    unused = [path.relative_to(ROOT) for path in found if not ruled(path) and path.name not in text]
    assert unused == [], "no test uses them: write one that does, or delete them"


@pytest.mark.parametrize(("pattern", "test", "has"), RULES, ids=[rule[0] for rule in RULES])
def test_every_rule_has_files_and_a_test_that_takes_them(pattern: str, test: str, has: str) -> None:
    assert list((ROOT / "deploy").glob(pattern))
    assert has in (ROOT / test).read_text(encoding="utf-8")


def test_every_population_of_a_guide_or_notebook_can_erase_labels() -> None:
    guides = ROOT / "deploy" / "guides"
    told = [line for path in guides.rglob("*.md") for line in path.read_text(encoding="utf-8").splitlines()]
    told += [line for path in guides.rglob("*.ipynb") for line in path.read_text(encoding="utf-8").splitlines()]
    declared = [line for line in told if re.search(r"--budget |lifetime_epsilon\W+\d|\bbudget\W{1,4}\d", line)]
    assert len(declared) > 10
    assert [line for line in declared if not re.search(r"missing.label", line)] == []


def test_a_guide_installs_so_that_its_notebooks_find_the_demo() -> None:
    """What is no part of the package is found beside it only where the install is editable."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "deploy" / "guides").rglob("*.md"))
    assert len(re.findall(r"pip install --editable '\.", text)) == len(re.findall("pip install", text)) > 2


def test_every_picture_is_shown_by_a_document() -> None:
    documents = [ROOT / "README.md", *(ROOT / "deploy" / "guides").glob("*.md")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in documents)
    for picture in (ROOT / "deploy" / "guides" / "pictures").glob("*.png"):
        assert f"pictures/{picture.name}" in text, picture.name
