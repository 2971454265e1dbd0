"""Background worker of `serve`: runs due schedules, draws charged work, resumes work after crashes, purges labels after
their retention."""

from __future__ import annotations

from collections.abc import Callable

from label_dp.http import worker

Chore = Callable[[Callable[[], bool]], int]  # takes a function that says whether to stop; returns a count


class ReleaseWorker(worker.Worker):
    """Worker whose rounds do the chores `before`, then `charged` work, then the chores `after`.

    After a failure work stays charged and is tried again.
    """

    logs_codes = False  # a refusal to seal depends on labels

    def __init__(
        self, before: tuple[Chore, ...], charged: tuple[Chore, ...], after: tuple[Chore, ...], poll_seconds: float
    ) -> None:
        super().__init__("release-worker", poll_seconds)
        self.before, self.charged, self.after = before, charged, after

    def round(self) -> bool:
        self.drain()
        return False

    def drain(self) -> int:
        """Do one round and return how much charged work was done. Raises the last failure, after the round."""
        total, failures = 0, list[Exception]()
        for chore in (*self.before, *self.charged, *self.after):
            try:
                count = chore(self.stopping)
                total += count if chore in self.charged else 0
            except Exception as error:  # the other chores still run
                failures.append(error)
        if failures:
            raise failures[-1]
        return total
