"""A check that Spark can be started here."""

from __future__ import annotations

import os
import shutil
import sys
from importlib.util import find_spec

from label_dp.cli.startup import allow_pandas
from label_dp.errors import InvalidSettings
from label_dp.installing import pip_install


def prepare_spark() -> None:
    """Tasks on this machine run in this Python, unless the environment names another. Raises InvalidSettings where a
    part is missing."""
    if find_spec("pyspark") is None:
        raise InvalidSettings(f"The engine 'spark' needs PySpark: {pip_install('spark')}.")
    home = os.environ.get("JAVA_HOME")
    if shutil.which(f"{home}/bin/java" if home else "java") is None:
        raise InvalidSettings("The engine 'spark' needs Java 17 or later: install it, or set JAVA_HOME.")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    allow_pandas()  # PySpark asks for it
