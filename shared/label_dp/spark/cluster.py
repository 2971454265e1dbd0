"""The session of Spark, checked before any work and started when it is first needed. A job is one finished action; no
frame is handed out."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from label_dp.cli.startup import allow_pandas
from label_dp.errors import InvalidSettings, LabelDPError, Unavailable
from label_dp.installing import pip_install
from label_dp.logs import event, log_internal
from label_dp.spark.task import SparkTask

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Action = Callable[["SparkSession"], "DataFrame"]
log = logging.getLogger("label_dp.spark")

# nothing about the jobs is kept or shown, what is spilled is encrypted, and partitions stay as they were asked for
FIXED = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.eventLog.enabled": "false",
    "spark.io.encryption.enabled": "true",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(1 << 16),
    "spark.log.level": "ERROR",
}
PROBLEM = {"problem": "string"}
ON_THIS_MACHINE = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


class Cluster:
    """`party`: whose work it does, and what `stands` where an action fails. `kernels`: the folder of compiled kernels,
    which tasks share. For tests of what happens to tasks: `hook` puts something around each of them, and `options`
    (a__b for a.b) are more of Spark's."""

    def __init__(
        self,
        party: str,
        master: str,
        stands: str,
        kernels: Path | None = None,
        hook: Callable[[Any], Any] = lambda task: task,
        **options: str,
    ) -> None:
        self.party, self.master, self.stands, self.kernels, self.hook = party, master, stands, kernels, hook
        self.options = {name.replace("__", "."): value for name, value in options.items()}
        self._session: SparkSession | None = None
        self._lock = threading.Lock()

    def close(self) -> None:
        with self._lock:
            session, self._session = self._session, None
            if session is not None:
                with contextlib.suppress(Exception):  # it may be gone already
                    session.stop()

    @property
    def parallelism(self) -> int:
        """Tasks that run at the same time, about. Raises Unavailable."""
        return int(self.ask(lambda spark: spark.sparkContext.defaultParallelism))

    def ask(self, question: Callable[[SparkSession], Any]) -> Any:
        """What the driver's session knows without a job. Raises Unavailable."""
        with self._told():
            return question(self._started())

    def pieces(self, task: SparkTask, count: int) -> list[dict[str, Any]]:
        """The records of the pieces 0 … count − 1 of `task`, in this order, as one finished action returned them.

        Raises Unavailable where the action does not finish, a LabelDPError where a piece failed for good."""
        found = self.collect(
            lambda spark: mapped(spark.range(0, count, 1, count), self.hook(task), task.columns | PROBLEM)
        )
        found.sort(key=lambda record: int(record["number"]))
        if [record["number"] for record in found] != list(range(count)):
            raise Unavailable("The cluster's action did not return every piece of work once.")
        return found

    def collect(self, action: Action) -> list[dict[str, Any]]:
        """The rows of the frame that `action` makes, by one action. Raises as `pieces`."""
        with self._told():
            try:
                rows = [row.asDict() for row in action(self._started()).collect()]
            except BaseException:
                self._forget_if_stopped()
                raise
        _refuse_failed(rows)
        return rows

    # --- parts --------------------------------------------------------------------------------------------

    def _started(self) -> SparkSession:
        from pyspark.sql import SparkSession

        with self._lock:
            if self._session is None:
                builder = SparkSession.builder.master(self.master)
                options = self.options | FIXED | {"spark.app.name": self.party}
                if self.kernels is not None:
                    options["spark.executorEnv.NUMBA_CACHE_DIR"] = str(self.kernels)
                if self.master.startswith("local"):
                    options |= ON_THIS_MACHINE
                for name, value in options.items():
                    builder = builder.config(name, value)
                self._session = builder.getOrCreate()
            return self._session

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """What Spark raises may quote what tasks saw: only its type is kept."""
        try:
            yield
        except LabelDPError:
            raise
        except Exception as error:
            kind = type(error).__name__
            log_internal(log, "the cluster", error)
            raise Unavailable(
                f"The cluster did not finish its work ({kind}); its logs say why. {self.stands}"
            ) from None

    def _forget_if_stopped(self) -> None:
        """After a failure: a session whose process or whose master is gone is of no use."""
        with self._lock:
            if self._session is None:
                return
            try:
                stopped = bool(self._session.sparkContext._jsc.sc().isStopped())
            except Exception:  # its process is gone
                stopped = True
            if stopped:
                with contextlib.suppress(Exception):
                    self._session.stop()
                self._session = None


def mapped(frame: DataFrame, task: Any, columns: dict[str, str], *, barrier: bool = False) -> DataFrame:
    """The records of `task` on a frame; lazy, so its only user is `collect`. `barrier`: all tasks run at once."""

    def run(batches: Iterable[Any]) -> Iterator[Any]:
        return task(batches)  # type: ignore[no-any-return]  # tasks yield record batches

    return frame.mapInArrow(run, ", ".join(f"{n} {kind}" for n, kind in columns.items()), barrier)


def _refuse_failed(rows: list[dict[str, Any]]) -> None:
    """Raises LabelDPError: the error may depend on labels or on a draw, so nothing is tried again; only the log says
    what it was."""
    problems = sorted({row["problem"] for row in rows if row.get("problem")})
    if problems:
        log.error("a task failed for good: %s", problems[0], extra=event("task-failed", error=problems[0]))
        raise LabelDPError("The work failed on the cluster; see the log.")


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
