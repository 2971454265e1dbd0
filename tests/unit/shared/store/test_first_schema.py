"""What the first migration of each party issues on each engine, to the letter: a change of the tables shows here.

Databases of a published version do not change with the tables: such a change needs a migration. As long as nothing was
published, `python -m tests.unit.shared.store.test_first_schema` writes the statements anew.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from features_party.storage import tables as features
from label_dp.store.migrations import create
from labels_party.storage import tables as labels

KEPT = Path(__file__).parents[3] / "support" / "schemas"
PARTIES = {"labels": labels, "features": features}
DIALECTS = {"sqlite": "sqlite://", "postgresql": "postgresql+psycopg://"}


def issued(party: str, dialect: str) -> str:
    """Every statement of the first migration, sorted; whitespace as one blank."""
    found: list[str] = []

    def note(statement: Any, *_: Any, **__: Any) -> None:
        found.append(" ".join(str(statement.compile(dialect=engine.dialect)).split()))

    engine: Any = sa.create_mock_engine(DIALECTS[dialect], note)
    create(engine, PARTIES[party].metadata, PARTIES[party].APPEND_ONLY)
    return ";\n".join(sorted(found)) + ";\n"  # indexes come in no order


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("party", PARTIES)
def test_the_first_schema_is_as_it_was(party: str, dialect: str) -> None:
    assert issued(party, dialect) == (KEPT / f"{party}-{dialect}.sql").read_text("utf-8")


if __name__ == "__main__":
    for of in PARTIES:
        for on in DIALECTS:
            (KEPT / f"{of}-{on}.sql").write_text(issued(of, on), "utf-8")
