"""A training keeps BLAS to the threads that it was given."""

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
from features_party.training.threads import blas_threads

def counts():
    return {lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"}

assert "scipy.linalg" not in sys.modules
with blas_threads(1):
    import scipy.optimize
    inside = counts()
print(sorted(inside), sorted(counts()))
"""


def test_every_blas_is_limited_and_let_go_again() -> None:
    # OPENBLAS_NUM_THREADS is what a machine of many cores would take by itself
    environment = {"OPENBLAS_NUM_THREADS": "2", "PATH": ""}
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    # OpenBLAS takes no more than there are cores
    assert done.stdout.split("\n")[0] == f"[1] [{min(2, len(os.sched_getaffinity(0)))}]"
