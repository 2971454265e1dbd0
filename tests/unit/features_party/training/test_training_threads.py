"""A training keeps BLAS to one thread, and OpenMP to as many as sleep while they wait."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.processes

# in a process of its own: tests run with one thread, and scipy must not be loaded before
SCRIPT = """
import numpy, sys
from threadpoolctl import threadpool_info
from features_party.training.threads import one_blas_thread

def counts():
    return {lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"}

assert "scipy.linalg" not in sys.modules
with one_blas_thread():
    import scipy.optimize
    inside = counts()
print(sorted(inside), sorted(counts()))
import pyarrow
from features_party.training.fitting import Examples, Recipe, fit
seen = set()
rows = Examples(pyarrow.table({"x": numpy.arange(100.0)}), numpy.arange(100.0))
fit(rows, Recipe("linear"), threads=2, progress=lambda what, _: seen.update(counts() if what == "moments" else ()))
print(sorted(seen))
"""


OPENMP = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
from features_party.training.threads import openmp_threads
print(openmp_threads(4))
"""


@pytest.mark.parametrize(
    ("imported", "policy", "threads"),
    [
        ("features_party.integrations.sklearn", "", 4),
        ("sklearn.ensemble", "", 1),  # its OpenMP spins by now
        ("sklearn.ensemble", "ACTIVE", 4),  # the user's own choice
    ],
)
def test_openmp_takes_several_threads_where_they_sleep(imported: str, policy: str, threads: int) -> None:
    pytest.importorskip("sklearn")
    environment = {"PATH": ""} | ({"OMP_WAIT_POLICY": policy} if policy else {})
    call = [sys.executable, "-c", OPENMP, imported]
    done = subprocess.run(call, capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stdout) == (0, f"{threads}\n"), done.stderr


def test_every_blas_is_limited_and_let_go_again() -> None:
    # OPENBLAS_NUM_THREADS is what a machine of many cores would take by itself
    environment = {"OPENBLAS_NUM_THREADS": "2", "PATH": ""}
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    # OpenBLAS takes no more than there are cores
    first, training, _ = done.stdout.split("\n")
    assert training == "[1]"  # whatever it was given: threads of BLAS spin while they wait
    assert first == f"[1] [{min(2, len(os.sched_getaffinity(0)))}]"
