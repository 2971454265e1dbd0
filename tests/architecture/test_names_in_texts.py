"""Every name in backticks in a guide, README or docstring is that of something: a file, a module, a function, a member.

What a name may stand for is every word of the sources but those of docstrings and comments; a text of the product is
held to the product, one of the tests to the tests too.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.extended

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("shared", "labels_party", "features_party", "deploy", "tests")
SOURCES = (".js", ".jinja", ".yml", ".yaml", ".toml", ".css", ".example", ".sh", ".lock", ".sql")
ELSEWHERE = {  # of other software, which nothing here imports or writes
    "pg_dump",
    "cross_val_score",
    "spark.authenticate",
    "spark.network.crypto.enabled",
}
PREFIXES = ("", "_", "label_dp_")  # the last of metrics
SERIES = re.compile(r"_(?:count|sum)$")  # of a metric, made by its library
CODE, BLOCK, COMMENT = re.compile(r"`([^`\n]+)`"), re.compile(r"```.*?```", re.DOTALL), re.compile(r"(?:^|\s)# .*")
FILE = re.compile(r"[\w./-]*\w\.(?:py|md|toml|yml|yaml|sh|jinja|ipynb|js|css|lock|example|json)")
DOTTED = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)(?:\(.*\))?")
CALL = re.compile(r"([A-Za-z_]\w*)\(.*\)")
SNAKE = re.compile(r"_?[a-z]+(?:_[a-z0-9]+)+")
PLACEHOLDER = re.compile(r"\b[A-Z]{4,}\b|[{<*]|^try/")
IMPORT = re.compile(r"^\s*(?:from|import) (\w+)", re.MULTILINE)


@dataclass(frozen=True)
class Module:
    """A file's docstrings, its other words (chains such as `plan.cost` and file names whole), and those of a class."""

    docstrings: str
    words: frozenset[str]
    classes: dict[str, frozenset[str]]


def _words(code: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", code)) | frozenset(re.findall(r"[\w.-]*\w", code))


def _documented(node: ast.Module | ast.stmt) -> Iterator[ast.AST]:
    yield node
    for below in getattr(node, "body", ()):
        if isinstance(below, ast.stmt):
            yield from _documented(below)


def _module(text: str) -> Module:
    lines, docs, classes = [COMMENT.sub("", line) for line in text.split("\n")], [], {}
    nodes = list(_documented(ast.parse(text)))
    for node in nodes:
        kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        if isinstance(node, kinds) and (found := ast.get_docstring(node, clean=False)) is not None:
            docs.append(found)
            first = node.body[0]
            lines[first.lineno - 1 : first.end_lineno] = [""] * (int(first.end_lineno or 0) - first.lineno + 1)
    for node in nodes:
        if isinstance(node, ast.ClassDef):
            classes[node.name] = _words("\n".join(lines[node.lineno - 1 : node.end_lineno]))
    return Module("\n".join(docs), _words("\n".join(lines)), classes)


def _files(*suffixes: str) -> Iterator[tuple[str, str]]:
    paths = [*ROOT.glob("*"), *(path for room in ROOMS for path in (ROOT / room).rglob("*"))]
    for path in sorted(paths):
        if path.is_file() and path.suffix in suffixes and not {"__pycache__", "node_modules"} & set(path.parts):
            yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


@cache
def modules() -> dict[str, Module]:
    return {name: _module(text) for name, text in _files(".py")}


@cache
def packages_of_others() -> frozenset[str]:
    found = {name for _, text in _files(".py") for name in IMPORT.findall(text)}
    return frozenset(found - {"label_dp", *ROOMS})


@dataclass
class Names:
    """What the sources of some rooms have: `words`, `members` of modules, packages and classes, and the `ends` of the
    paths of all files, each with its room."""

    words: set[str] = field(default_factory=set)
    members: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    ends: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def has(self, name: str, where: str) -> bool:
        """Whether what stands in backticks in the file `where` looks like no name, or is one."""
        if PLACEHOLDER.search(name) or name in ELSEWHERE or name in self.words:
            return True
        if FILE.fullmatch(name):
            tests = where.startswith("tests/") or name.startswith("tests/")
            rooms = self.ends[re.sub(r"^(\.+/)+", "", name)] - (set() if tests else {"tests"})
            return bool(rooms) or Path(name).name in self.words
        if dotted := DOTTED.fullmatch(name):
            *_, owner, last = parts = dotted[1].split(".")
            own = modules()[where].words if where in modules() else frozenset[str]()
            local = parts[0] in own and last in self.words  # an argument and what it has
            return last in self.members.get(owner, ()) or local or parts[0] in packages_of_others()
        if call := CALL.fullmatch(name):
            return call[1] in self.words
        return not SNAKE.fullmatch(name) or any(prefix + SERIES.sub("", name) in self.words for prefix in PREFIXES)


@cache
def names(tests: bool) -> Names:
    found = Names()
    for name, text in _files(".py", *SOURCES, ".md", ".ipynb", ".json", ".Dockerfile"):
        parts = name.split("/")
        for at in range(len(parts)):
            found.ends["/".join(parts[at:])].add(parts[0])
        if name.endswith(SOURCES) and (tests or parts[0] != "tests"):
            found.words |= _words(text)
    for name, module in modules().items():
        if name.startswith("tests/") and not tests:
            continue
        path = Path(name)
        stem = path.parent.name if path.stem == "__init__" else path.stem
        found.words |= module.words | {stem}
        found.members[stem] |= module.words
        for below, package in zip(path.parts[1:], path.parts, strict=False):
            found.members[package].add(below.removesuffix(".py"))
        for owner, words in module.classes.items():
            found.members[owner] |= words
    return found


def texts() -> Iterator[tuple[str, str]]:
    """Guides and READMEs without their blocks of commands, and docstrings."""
    for name, text in _files(".md"):
        if name != "CHANGELOG.md" and "/results/" not in name:
            yield name, BLOCK.sub("", text)
    for name, module in modules().items():
        yield name, module.docstrings


def test_every_name_in_backticks_is_that_of_something() -> None:
    unknown = [
        f"{where}: `{name}`"
        for where, text in texts()
        for name in CODE.findall(text)
        if not names(where.startswith("tests/")).has(name, where) and not (ROOT / where).parent.joinpath(name).exists()
    ]
    assert unknown == []


def test_the_check_sees_what_is_gone() -> None:
    found, where = names(tests=False), "labels_party/companions/mechanisms/private_median/rectangles.py"
    assert all(found.has(name, where) for name in ("interval_point.py", "entropy.discrete_laplace", "plan.cost", "x"))
    gone = ("mechanisms/baseline.py", "slice_costs.in_order", "depth.gone", "vanish(x)", "gone_name", "deploy/gone.md")
    assert not any(found.has(name, where) for name in gone)
