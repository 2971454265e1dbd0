"""What a stranger meets: sizes, reused class names, names that are participles, untyped returns, modules cut too fine.

`python -m tests.measures.house` prints the table; `tests/architecture/test_house.py` lets no figure rise.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("shared", "labels_party", "features_party", "deploy")
PARTICIPLE = re.compile(
    "_*(?:found|told|asked|given|wanted|known|held|kept|said|seen|taken|drawn|written|made|sent|judged|fitted|joined|pulled"
    "|received|charged|listed|shown|done|left|lost|grown|observed|stated|meant|noted|chosen|paid|met|stands|apart|around"
    "|together|standing|sort|mine|theirs)_*"
)
OPENERS = re.compile(r"(What|How|Who|Where|Whether|Which|When|Whose)\b")


@cache
def sources() -> dict[str, ast.Module]:
    """The syntax of every product file, by its path."""
    return {
        path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for room in PRODUCT
        for path in sorted((ROOT / room).rglob("*.py"))
    }


@cache
def _all_nodes() -> dict[type[ast.AST], list[ast.AST]]:
    """Every node of the product by its type, from one walk."""
    found = defaultdict[type[ast.AST], list[ast.AST]](list)
    for tree in sources().values():
        for node in ast.walk(tree):
            found[type(node)].append(node)
    return found


def _nodes(*kinds: type[ast.AST]) -> Iterator[ast.AST]:
    for kind in kinds:
        yield from _all_nodes()[kind]


def core_lines() -> int:
    """Lines of the product without deploy, companions and Spark: what somebody reads who wants the message alone."""
    beside = re.compile("deploy/|.*/(companions|spark)/")
    paths = [path for path in sources() if not beside.match(path)]
    return sum(len((ROOT / path).read_text(encoding="utf-8").splitlines()) for path in paths)


def circles() -> list[tuple[str, str]]:
    """Pairs of rooms of one package that import each other."""
    imports = set[tuple[str, str]]()
    for path, tree in sources().items():
        room = _room(path.removeprefix("shared/").removesuffix(".py").replace("/", "."))
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                names = [f"{node.module}.{alias.name}" for alias in node.names]
                imports |= {(room, _room(name)) for name in names if _room(name).split(".")[0] == room.split(".")[0]}
    return sorted((one, other) for one, other in imports if one < other and (other, one) in imports)


def _room(module: str) -> str:
    """`label_dp.http`; a module that lies loose is a room of its own."""
    return ".".join(module.split(".")[:2])


def classes() -> Counter[str]:
    """How often each class name is used."""
    return Counter(node.name for node in _nodes(ast.ClassDef) if isinstance(node, ast.ClassDef))


def reused_classes() -> list[str]:
    """Names of several classes. The standalone verifier says what the product says with the same words, on purpose."""
    trees = [tree for path, tree in sources().items() if not path.startswith("deploy/verify_standalone/")]
    names = Counter(node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    return sorted(name for name, count in names.items() if count > 1)


def participle_classes() -> list[str]:
    """Classes whose name is a participle alone."""
    return sorted(name for name in classes() if PARTICIPLE.fullmatch(name.lower()))


def participle_bindings() -> list[str]:
    """`file:line name` of each participle alone that gets a value: assignments, parameters, loop variables."""
    return [
        f"{path}:{line} {name}"
        for path, tree in sources().items()
        for line, name in sorted(filter(None, map(_binding, ast.walk(tree))))
        if PARTICIPLE.fullmatch(name)
    ]


def _binding(node: ast.AST) -> tuple[int, str] | None:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.lineno, node.id
    return (node.lineno, node.arg) if isinstance(node, ast.arg) else None


def untyped_returns() -> int:
    """Functions that return `dict[str, Any]`."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return sum(
        isinstance(node, functions) and node.returns is not None and ast.unparse(node.returns) == "dict[str, Any]"
        for node in _nodes(*functions)
    )


def riddles() -> int:
    """Docstrings of modules that begin with a question word."""
    return sum(bool(OPENERS.match(ast.get_docstring(tree) or "")) for tree in sources().values())


def lines() -> tuple[int, int]:
    """Product files and their lines."""
    return len(sources()), sum((ROOT / path).read_text(encoding="utf-8").count("\n") for path in sources())


def _module(path: str) -> str:
    return path.removeprefix("shared/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def importers() -> dict[str, set[str]]:
    """Which product files import each product module."""
    modules, by = {_module(path) for path in sources()}, defaultdict[str, set[str]](set)
    for path, tree in sources().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for name in node.names:
                    below = f"{node.module}.{name.name}"
                    by[below if below in modules else node.module].add(path)
    return {module: by[module] for module in modules}


def fine_modules() -> int:
    """Modules under 70 lines with exactly one importer."""
    small = {_module(path) for path in sources() if (ROOT / path).read_text(encoding="utf-8").count("\n") < 70}
    return sum(module in small and len(files) == 1 for module, files in importers().items())


def lazy_imports() -> int:
    """Imports of our own modules inside functions."""
    inside = 0
    for function in _nodes(ast.FunctionDef, ast.AsyncFunctionDef):
        inside += sum(
            isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("label_dp", *PRODUCT)
            for node in ast.walk(function)
        )
    return inside


def figures() -> dict[str, int]:
    """Every figure by its name, smaller is better."""
    files, size = lines()
    names = classes()
    return {
        "product files": files,
        "product lines": size,
        "product lines of the core": core_lines(),
        "pairs of rooms that import each other": len(circles()),
        "classes": names.total(),
        "class names used more than once": len(reused_classes()),
        "classes named by a participle": len(participle_classes()),
        "bindings of a participle": len(participle_bindings()),
        "functions that return dict[str, Any]": untyped_returns(),
        "modules that open with a question word": riddles(),
        "modules under 70 lines with one importer": fine_modules(),
        "imports of our own modules inside functions": lazy_imports(),
        "loose files of shared/label_dp": len(list((ROOT / "shared/label_dp").glob("*.py"))),
        "loose files of features_party": len(list((ROOT / "features_party").glob("*.py"))),
    }


if __name__ == "__main__":
    for name, figure in figures().items():
        print(f"{figure:>7,}  {name}")
