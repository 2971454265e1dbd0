"""No ε rests on an exponential, a logarithm or a root of a library: each use says what it is for.

Their results are not fixed by IEEE 754 and their errors not proved. What must hold exactly uses whole numbers, or
`mechanisms/exponentials.py`.
"""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FUNCTIONS = {
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "logaddexp", "sqrt", "cbrt", "pow", "power", "ln"),
    *("sinh", "cosh", "tanh", "arctanh", "atanh", "erf", "erfc", "gamma", "lgamma", "expit", "logsumexp", "softmax"),
}
PAID, PUBLIC, UTILITY = (
    "of a prior that is paid for: which channel is designed, whose ε is proved afterwards in whole numbers",
    "of public numbers: a plan, a default or a bound of an error, stored with the plan or only shown",
    "of what was learned from one part, however it was: one example changes one part",
)
DECIMALS = "of Python's decimals, which are correctly rounded; no part of the service"
CHECKED = "of public numbers, only where to look: what is found is proved in whole numbers"

# file below labels_party/mechanisms, or that of the companions → what its functions are for
USES = {
    "bins.py": PAID,
    "bins_grid.py": PAID,
    "bins_kernels.py": PAID,
    "bins_paths.py": PAID,
    "clip.py": PAID,
    "knots.py": PAID,
    "laplace.py": CHECKED,
    "quantiles.py": PUBLIC,
    "staircase.py": CHECKED,
    "unbiased.py": PAID,
    "isotonic/binned.py": PUBLIC,
    "isotonic/binning.py": PUBLIC,
    "isotonic/constrained.py": PUBLIC,
    "isotonic/depth.py": PUBLIC,
    "private_median/accounting.py": CHECKED,
    "private_median/interval_point.py": PUBLIC,
    "private_prediction/learners.py": UTILITY,
    "private_prediction/stable.py": PUBLIC,
    "private_prediction/votes.py": PUBLIC,
    "private_prediction/walk.py": PUBLIC,
}


def used(source: str) -> set[str]:
    """The functions that are called in a module, or handed on, by their names."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr in FUNCTIONS:
            found.add(node.attr)
        if isinstance(node, ast.ImportFrom) and node.module in ("math", "numpy", "scipy.special"):
            found |= {alias.name for alias in node.names} & FUNCTIONS
    return found


def test_every_module_with_such_a_function_says_what_it_is_for() -> None:
    rooms = [ROOT / "labels_party" / room for room in ("mechanisms", "companions/mechanisms")]
    files = [(path, room) for room in rooms for path in room.rglob("*.py")]
    users = {path.relative_to(room).as_posix() for path, room in files if used(path.read_text("utf-8"))}
    assert users == set(USES)


def test_what_draws_has_none() -> None:
    for name in (
        "entropy",
        "choice",
        "exponentials",
        "sampling",
        "alias",
        "additive",
        "one_bit",
        "randomized_response",
    ):
        assert used((ROOT / "labels_party" / "mechanisms" / f"{name}.py").read_text("utf-8")) == set(), name


def test_control_they_are_seen_however_they_are_called() -> None:
    assert used("import numpy as np\nf = np.exp") == {"exp"}
    assert used("from math import log1p as l") == {"log1p"}
    assert used("from decimal import Decimal\nDecimal(2).ln()") == {"ln"}
    assert used("power = 2\nepsilon.exp_lower()") == set()
