"""Every module outside the room of labels that reads sealed labels has a row, with its payment, in one table."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = ROOT / "labels_party" / "README.md"
READERS = {  # module: the row that says what pays for it
    "message/kind.py": "message: draw",
    "message/engine.py": "message: draw",
    "message/clipping.py": "message: bounds",
    "spark/engine.py": "message: draw",
    "spark/executor/counting.py": "message: prior",
    "spark/executor/drawing.py": "message: draw",
    "companions/kinds/calibration/kind.py": "calibration",
    "companions/kinds/calibration/scores.py": "calibration",
    "companions/kinds/median.py": "median",
    "companions/kinds/own_features.py": "rectangle, linear model, sums",
    "companions/kinds/sum.py": "rectangle, linear model, sums",
    "companions/kinds/feature_store.py": "rectangle, linear model, sums",
    "companions/kinds/prediction/predictors.py": "predictor: learning",
}

PASSED_ON = {"work/kind.py", "work/pipeline.py"}  # they declare and hand over what a reader reads


def reads(tree: ast.Module) -> bool:
    """Whether a module opens sealed labels itself, or takes those of a job or of another reader."""
    return any(
        (isinstance(node, ast.Name) and node.id in ("SealedLabels", "IndexedLabels"))
        or (isinstance(node, ast.Attribute) and node.attr == "labels" and ast.unparse(node.value) in ("job", "self"))
        for node in ast.walk(tree)
    )


def test_every_reader_of_sealed_labels_has_a_row() -> None:
    party = ROOT / "labels_party"
    rooms = [
        party / room for room in ("message", "companions", "spark", "work", "api", "cli", "pages", "notify", "files")
    ]
    paths = [*party.glob("*.py"), *(path for room in rooms for path in room.rglob("*.py"))]
    readers = {path.relative_to(party).as_posix() for path in paths if reads(ast.parse(path.read_text("utf-8")))}
    readers -= PASSED_ON | {name for name in readers if name.startswith("companions/mechanisms/")}  # these take arrays
    assert readers == READERS.keys()


@pytest.mark.parametrize("row", sorted(set(READERS.values())))
def test_every_row_names_its_payment(row: str) -> None:
    text = README.read_text(encoding="utf-8")
    assert re.search(rf"^\| {re.escape(row)} \| [^|]+ \| [^|]+ \|$", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("source", "expected"),
    [("x = job.labels.chunks()", True), ("x = SealedLabels(vault)", True), ("x = examples.labels", False)],
)
def test_the_check_sees_a_reader(source: str, expected: bool) -> None:
    assert reads(ast.parse(source)) is expected
