"""Single changes of the product, by the operators of cosmic-ray; a seed chooses which."""

from __future__ import annotations

import ast
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cosmic_ray import ast as trees
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

STEPS = ("intake", "arrival", "upload_rows", "comparison", "recorder", "parsing", "label_file", "formats/*")
RULES = ("rules", "rulebook", "received_rules", "checks", "judged", "receipts", "hand_overs", "compare")
ROOMS = {
    "ledger": ("labels_party/ledger",),
    "work": ("labels_party/work",),
    "audit rules": tuple(f"shared/label_dp/audit/{name}.py" for name in RULES),
    "channels": ("shared/label_dp/channels",),
    "mechanisms": ("labels_party/mechanisms",),
    "documents": ("shared/label_dp/documents",),
    "intake": tuple(f"labels_party/labels/{name}.py" for name in STEPS),
    "receive": ("features_party/receive",),
}
LEFT_OUT = ("VariableInserter", "VariableReplacer")  # they take names as arguments, and are experimental
Position = tuple[int, int]


@dataclass(frozen=True)
class Mutation:
    """Change at a line; tests that run one of `lines` may notice it."""

    room: str
    file: str
    line: int
    lines: range
    operator: str
    occurrence: int

    def text(self, source: str) -> str:
        changed: str | None = mutate_code(source, get_operator(self.operator)(), self.occurrence)
        assert changed is not None, self
        return changed

    def told(self, source: str) -> str:
        """Where it is, what stood there, and what stands there now."""
        before, now = source.splitlines(), self.text(source).splitlines()
        if len(now) < len(before):
            return f"{self.file}:{self.line}: {before[self.line - 1].strip()}  →  nothing"
        place = next(i for i, (a, b) in enumerate(zip(before, now, strict=True)) if a != b)
        return f"{self.file}:{place + 1}: {before[place].strip()}  →  {now[place].strip()}"


def files_of(root: Path, room: str) -> list[Path]:
    found: set[Path] = set()
    for pattern in ROOMS[room]:
        found |= set(root.glob(pattern if pattern.endswith(".py") else f"{pattern}/**/*.py"))
    if not found:
        raise FileNotFoundError(f"The room '{room}' has no file below '{root}': {', '.join(ROOMS[room])}.")
    return sorted(found)


def chosen(root: Path, count: int, seed: int, fits: Callable[[Mutation], bool] = lambda _: True) -> list[Mutation]:
    """`count` places, from each room as many, and at each of them one of the possible changes that fit."""
    rng, found = random.Random(seed), list[Mutation]()
    for number, room in enumerate(ROOMS):
        places: dict[tuple[str, Position, str], list[Mutation]] = {}
        for path in files_of(root, room):
            source, name = path.read_text(encoding="utf-8"), path.relative_to(root).as_posix()
            lines_of = _scopes(source)
            for start, family, operator, occurrence in _possible(source):
                change = Mutation(room, name, start[0], lines_of[start[0]], operator, occurrence)
                if fits(change):
                    places.setdefault((name, start, family), []).append(change)
        share = count // len(ROOMS) + (number < count % len(ROOMS))
        keys = rng.sample(sorted(places), min(share, len(places)))
        found += [rng.choice(places[key]) for key in keys]
    return found


def _scopes(source: str) -> dict[int, range]:
    """Of each line the lines that run with it: itself within a function. A decorator or a signature runs on import,
    whichever test comes first, so it is known by its function's body, and what is in no function by the whole file."""
    whole = range(1, len(source.splitlines()) + 1)
    scopes = dict.fromkeys(whole, whole)
    for node in ast.walk(ast.parse(source)):  # an outer function before those within it
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first, body = min([node, *node.decorator_list], key=lambda part: part.lineno).lineno, node.body[0].lineno
            end = (node.end_lineno or body) + 1
            scopes |= {line: range(body, end) for line in range(first, body)}
            scopes |= {line: range(line, line + 1) for line in range(body, end)}
    return scopes


def _possible(source: str) -> Iterator[tuple[Position, str, str, int]]:
    """(where, kind of change, operator, its occurrence) of every change but those that change nothing that runs."""
    nodes, silent = list(trees.ast_nodes(trees.get_ast(source))), list(_silent(source))
    for operator in operator_names():
        family = operator.split("/")[1].split("_")[0]
        if family in LEFT_OUT:
            continue
        known: Any = get_operator(operator)()
        positions = (place for node in nodes for place in known.mutation_positions(node))
        for occurrence, (start, _end) in enumerate(positions):
            if not any(first <= start < last for first, last in silent):
                yield start, family, operator, occurrence


def _silent(source: str) -> Iterator[tuple[Position, Position]]:
    """Annotations, tests of TYPE_CHECKING and `@abstractmethod`: mypy reads them, and no call of the product does."""
    for node in ast.walk(ast.parse(source)):
        for told in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            if isinstance(told, ast.expr):
                yield (told.lineno, told.col_offset), (told.end_lineno or 0, told.end_col_offset or 0)
        for told in (getattr(node, "test", None), *getattr(node, "decorator_list", ())):
            if isinstance(told, ast.Name) and told.id in ("TYPE_CHECKING", "abstractmethod"):
                yield (told.lineno, 0), (told.lineno + 1, 0)
