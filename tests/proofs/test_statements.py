"""No statement has a counterexample; with one premise of a wrong program, each has one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import z3

from tests.proofs.statements import Premises, Statement, statements

pytestmark = pytest.mark.extended

PAGE = Path(__file__).parents[2] / "deploy" / "guides" / "what-epsilon-rests-on.md"
MOST_STEPS = 20_000_000  # of z3, a limit that does not depend on the machine


def counterexample(premises: Premises, claim: z3.BoolRef) -> z3.CheckSatResult:
    solver = z3.Solver()
    solver.set("rlimit", MOST_STEPS)
    solver.add(*premises.values(), z3.Not(claim))
    return solver.check()


@pytest.mark.parametrize("make", [pytest.param(make, id=make.__name__) for make in statements()])
def test_a_statement_has_no_counterexample_and_its_bug_has(make: Callable[[], Statement]) -> None:
    statement = make()
    assert counterexample(statement.premises, statement.claim) == z3.unsat
    assert statement.bug.keys() <= statement.premises.keys()
    assert counterexample(statement.premises | statement.bug, statement.claim) == z3.sat
    assert counterexample(statement.premises, z3.BoolVal(False)) == z3.sat  # the premises can hold together


def test_the_page_of_the_steps_names_every_statement() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [make.__name__ for make in statements() if make.__name__.replace("_", " ") not in page] == []
