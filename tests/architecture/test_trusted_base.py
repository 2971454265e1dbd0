"""The files that ε rests on: the page lists them, they are few, and what they import besides has a reason."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "deploy" / "guides" / "what-epsilon-rests-on.md"
DRAW, ROWS = "The draw and its charge", "Which rows count, and what sets the draw going"
MOST_LINES = 10_450
ROW = re.compile(r"^\| ([^|]+) \| ((?:`[\w.]+`(?:, )?)+) \| (\d+) \|", re.MULTILINE)
ROOMS = {"label_dp": "shared/label_dp", "labels_party": "labels_party", "features_party": "features_party"}
BESIDE = {  # what the trusted files import besides each other, and why a fault there tells nothing of labels
    "errors, names and schemas: no labels reach them": (
        "label_dp.errors label_dp.problems label_dp.actors label_dp.class_names label_dp.losses label_dp.moments "
        "label_dp.installing label_dp.schemas.release label_dp.schemas.base label_dp.schemas.events label_dp.channels "
        "label_dp.schemas.replies label_dp.schemas.json_types label_dp.documents.registry "
        "labels_party.message.request labels_party.message.classes"
    ),
    "streams: items are handed on in order, unread": "label_dp.ahead",
    "designs of channels, which are proved after them": (
        "labels_party.mechanisms.auto labels_party.mechanisms.balanced labels_party.mechanisms.bins "
        "labels_party.mechanisms.classes labels_party.mechanisms.clip "
        "labels_party.mechanisms.laplace labels_party.mechanisms.staircase labels_party.mechanisms.unbiased "
        "labels_party.mechanisms.subset_selection"
    ),
    "rows of the database, files and folders: what is charged and published is decided by their callers": (
        "labels_party.storage.tables labels_party.storage.files labels_party.storage.secrets label_dp.store.folders "
        "label_dp.store.faults label_dp.store.objects.port label_dp.store.objects.bucket "
        "labels_party.ledger.populations labels_party.labels.batches labels_party.labels.batch_uses"
    ),
    "the budget of a body of people for its owner, and its refusals in words: the store holds each charge to the rule "
    "itself": "labels_party.ledger.people",
    "ceilings of an organisation's policy: without them each charge is within its population's lifetime": (
        "label_dp.audit.ceilings label_dp.audit.policies labels_party.ledger.ceilings"
    ),
    "sealed labels at rest: those of the second list, and which label an example has": (
        "labels_party.labels.seal labels_party.labels.vault labels_party.labels.ciphered labels_party.labels.parsing"
    ),
    "heads of the chain: digests of its events": "label_dp.audit.heads",
    "callers, repeats, notices and logs: they know ids of works and digests": (
        "label_dp.store.apikeys label_dp.store.idempotency label_dp.logs labels_party.notify.outbox "
        "labels_party.work.identity labels_party.work.charged"
    ),
    "the spelling of what was drawn": "label_dp.columnar.parquet_pages label_dp.columnar.thrift",
    "other signed documents and tables: public facts": (
        "label_dp.documents.bundle label_dp.documents.export label_dp.documents.hand_over label_dp.audit.hand_overs "
        "label_dp.columnar.tables"
    ),
}


def parts(title: str = DRAW) -> dict[str, tuple[list[str], int]]:
    """The modules of each part of a list of the page, and the lines that it states."""
    section = PAGE.read_text(encoding="utf-8").split(f"\n## {title}\n")[1].split("\n## ")[0]
    found = ROW.findall(section)
    return {part: (re.findall(r"`([\w.]+)`", modules), int(lines)) for part, modules, lines in found}


def path_of(module: str) -> Path:
    room, _, rest = module.partition(".")
    path = ROOT / ROOMS[room] / rest.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def lines_of(module: str) -> int:
    return len(path_of(module).read_text(encoding="utf-8").splitlines())


def imports(source: str) -> set[str]:
    """Our own modules that a file imports anywhere when it runs; what only type checkers see does not count."""
    found: set[str] = set()

    def walk(node: ast.AST) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            return
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in ROOMS:
            for name in node.names:
                below = f"{node.module}.{name.name}"
                found.add(below if path_of(below).exists() else node.module)
        for child in ast.iter_child_nodes(node):
            walk(child)

    walk(ast.parse(source))
    return found


def trusted() -> set[str]:
    return {module for modules, _ in parts().values() for module in modules}


def beside() -> set[str]:
    return {module for modules in BESIDE.values() for module in modules.split()}


@pytest.mark.parametrize(("title", "rows"), [(DRAW, 8), (ROWS, 7)])
def test_the_page_states_the_lines_of_each_part(title: str, rows: int) -> None:
    counted = {part: (sum(map(lines_of, modules)), stated) for part, (modules, stated) in parts(title).items()}
    assert len(counted) == rows
    assert {part: figures for part, figures in counted.items() if abs(figures[0] - figures[1]) > 0.1 * figures[0]} == {}


def test_there_are_few_lines() -> None:
    assert sum(map(lines_of, trusted())) <= MOST_LINES


def test_the_page_gives_the_reason_of_every_other_import() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert [reason for reason in BESIDE if f"\n- {reason}\n" not in text] == []


def test_the_trusted_files_import_each_other_and_what_cannot_leak() -> None:
    others = {
        module: extra
        for module in trusted()
        if (extra := imports(path_of(module).read_text(encoding="utf-8")) - trusted() - beside())
    }
    assert others == {}


def test_no_reason_is_left_of_what_is_imported_no_more() -> None:
    used = set().union(*(imports(path_of(module).read_text(encoding="utf-8")) for module in trusted()))
    assert beside() - used == set()


@pytest.mark.parametrize(
    "line", ["from labels_party.pages import plan", "def f():\n    from features_party import files"]
)
def test_the_contract_sees_another_import(line: str) -> None:
    assert imports(line) - trusted() - beside()
