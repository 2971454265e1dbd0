"""A session of Spark here, or a standalone master with two workers; a stated skip where a part is missing."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from label_dp.errors import InvalidSettings
from label_dp.spark.cluster import prepare_spark
from tests.support.processes import ROOT

if TYPE_CHECKING:
    from label_dp.spark.cluster import Cluster

HOSTS = ("127.0.0.2", "127.0.0.3")
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"  # tests are too short for the best code
SMALL = {
    "spark__driver__memory": "512m",
    "spark__executor__memory": "512m",
    "spark__driver__extraJavaOptions": QUICK,
    "spark__executor__extraJavaOptions": QUICK,
    "spark__sql__codegen__wholeStage": "false",
    "spark__sql__codegen__factoryMode": "NO_CODEGEN",
}
STANDS = "What stood before the action stands."
KERNELS = ROOT / ".pytest_cache" / "kernels"


def require() -> None:
    """Skips with the reason where PySpark or Java is missing (fails in CI)."""
    try:
        prepare_spark()
    except InvalidSettings as error:
        if os.environ.get("CI") == "true":
            pytest.fail(error.detail)
        pytest.skip(error.detail)


@contextlib.contextmanager
def session() -> Iterator[Cluster]:
    """On two cores of this machine, four attempts a task."""
    require()
    from label_dp.spark.cluster import Cluster

    with pytest.MonkeyPatch.context() as patch:
        # tasks import tests, which are no part of the package
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        cluster = Cluster("tests", "local[2,4]", STANDS, KERNELS, **SMALL)
        yield cluster
        cluster.close()


@contextlib.contextmanager
def standalone(**options: str) -> Iterator[Cluster]:
    """Under a standalone master, with a worker of one core on each of two addresses."""
    require()
    import pyspark

    from label_dp.spark.cluster import Cluster

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    master, started = f"spark://127.0.0.1:{port}", list[subprocess.Popen[bytes]]()
    home = Path(pyspark.__file__).parent
    with tempfile.TemporaryDirectory() as folder:

        def start(role: str, host: str, *arguments: str) -> None:
            name = f"org.apache.spark.deploy.{role.lower()}.{role}"
            command = [home / "bin" / "spark-class", name, "--host", host, "--webui-port", "0", *arguments]
            small = {
                "SPARK_DAEMON_MEMORY": "256m",
                "SPARK_DAEMON_JAVA_OPTS": QUICK,
                "SPARK_LOCAL_IP": host,
                "SPARK_HOME": str(home),
            }
            log = (Path(folder) / f"{host}.log").open("wb")
            started.append(subprocess.Popen(command, env=os.environ | small, stdout=log, stderr=log))

        try:
            start("Master", "127.0.0.1", "--port", str(port))
            for host in HOSTS:
                work = ["--cores", "1", "--memory", "1g", "--work-dir", f"{folder}/{host}", master]
                start("Worker", host, *work)
            _wait(Path(folder) / "127.0.0.1.log", "Registering worker", len(HOSTS))
            cluster = Cluster("tests", master, STANDS, KERNELS, **SMALL, **options)
            try:
                yield cluster
            finally:
                cluster.close()
        finally:
            for process in started:
                process.terminate()
            for process in started:
                process.wait()


def _wait(log: Path, text: str, times: int, seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not log.exists() or log.read_text(errors="replace").count(text) < times:
        assert time.monotonic() < until, "the standalone master did not start"
        time.sleep(0.2)
