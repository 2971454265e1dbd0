"""Processes of one machine under virtual time: one runs at a time, until it ends or its schedule holds it up.

A call of a process is a task: a thread that runs only while `Task.resume` waits for it, so the schedule alone decides
who goes on. Where it may be held up, killed or refused are the fault points of the product; its leases end by the
clock of the schedule, which no one waits for.
"""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import tenacity
import tenacity.nap

from label_dp.audit.events import Event
from label_dp.errors import LabelDPError, Unavailable
from label_dp.store import database, idempotency
from labels_party.message import schedule
from labels_party.work import attempts, leases
from tests.support.labels import FakeClock
from tests.support.ledger_faults import DROP, FULL, Crash, Faults, full_disk

PAUSE, FREEZE = "pause", "freeze"  # held up with and without the heartbeats of its leases
OK, REFUSED, UNKNOWN, DIED, HELD, BROKEN = "ok", "refused", "unknown", "died", "held", "broken"
Outcome = tuple[str, Any]


class Task:
    """A call in a thread that takes turns with whoever resumes it."""

    def __init__(self, call: Callable[[], Outcome]) -> None:
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self.outcome: Outcome | None = None
        self.thread = threading.Thread(target=self._run, args=(call,), daemon=True)

    def _run(self, call: Callable[[], Outcome]) -> None:
        try:
            self.outcome = call()
        except BaseException as error:  # for the thread of the schedule
            self.outcome = BROKEN, error
        self._back.release()

    def resume(self) -> Outcome | None:
        """Run until the end, whose outcome this returns, or until `hold`."""
        if self.thread.ident is None:
            self.thread.start()
        else:
            self._go.release()
        self._back.acquire()
        if self.outcome is not None:
            self.thread.join()
        return self.outcome

    def hold(self) -> None:
        self._back.release()
        self._go.acquire()


class Process(Faults):
    """One process, which is its own fault hook. `start` makes its services, again after each crash."""

    def __init__(self, clock: FakeClock, host: str, start: Callable[[Process], Any], stop: Callable[[Any], None]):
        super().__init__()
        self.clock, self.host, self._start, self._stop = clock, host, start, stop
        self.services: Any = None
        self.task: Task | None = None
        self.frozen, self.points, self.wake = False, 0, 0.0
        self.beats: list[tuple[str, Callable[[Any], None]]] = []
        self.seen: dict[str, set[str]] = {}  # digests of what its store was sent, by object
        self._finish: Callable[[Outcome], str] = lambda outcome: outcome[0]

    # --- turns --------------------------------------------------------------------------------------------

    def begin(self, call: Callable[[Any], Any], fault: str, nth: int, finish: Callable[[Outcome], str]) -> str:
        """Run `call` of the services until it ends or is held up; returns which. `finish` gets its outcome."""
        assert self.task is None
        self.points, self._finish = 0, finish
        self.arm(fault, nth)
        self.task = Task(lambda: self._call(call))
        return self.go_on()

    def go_on(self) -> str:
        task = self.task
        assert task is not None
        if self.frozen:
            self.frozen = False
            self.beat()
        self.clock.now = max(self.clock.now, self.clock.now.fromtimestamp(self.wake, self.clock.now.tzinfo))
        with full_disk() if self.kind == FULL else contextlib.nullcontext():
            outcome = task.resume()
        if outcome is None:
            return HELD
        self.task = None
        if outcome[0] == DIED:
            self.close()
        self.calm()
        if outcome[0] == BROKEN:
            raise outcome[1]
        return self._finish(outcome)

    def kill(self) -> None:
        """End it wherever it is, as SIGKILL does."""
        self._dead = True
        if self.task is not None:
            self.go_on()
        self.close()
        self.calm()

    def close(self) -> None:
        if self.services is not None:
            self._stop(self.services)
        self.services = None
        self.beats.clear()
        self.frozen, self.wake = False, 0.0

    def _call(self, call: Callable[[Any], Any]) -> Outcome:
        try:
            if self.services is None:
                self.services = self._start(self)
            return OK, call(self.services)
        except Crash:
            return DIED, None
        except Unavailable as error:
            return UNKNOWN, error.detail
        except LabelDPError as error:
            return REFUSED, error.code

    # --- what goes wrong ----------------------------------------------------------------------------------

    def __call__(self, point: str) -> None:
        if self.task is None or threading.current_thread() is not self.task.thread:
            return  # a heartbeat, a thread beside it, or whoever looks
        self.points += 1
        if self.kind in (PAUSE, FREEZE) and not self._dead:
            self._left -= self._free()
            if self._left <= 0 and self._free():
                self.frozen, self.kind = self.kind == FREEZE, ""
                self.task.hold()
        if self._dead or not (self.kind == DROP and point.startswith("objects.")):
            super().__call__(point)

    def trouble(self, *kinds: str) -> str:
        """The kind of trouble that strikes this call of a store or network, the n-th; "" for none."""
        if self.kind not in kinds or self._dead:
            return ""
        self._left -= 1
        kind, self.kind = (self.kind, "") if self._left == 0 else ("", self.kind)
        return kind

    def _free(self) -> bool:
        """Whether it holds no transaction: others may write meanwhile."""
        return self.services is not None and self.services.database.engine.pool.checkedout() == 0

    def beat(self) -> None:
        for name, extend in self.beats:
            with contextlib.suppress(LabelDPError):
                self.services.database.write(name, extend)

    def sleep(self, seconds: float) -> None:
        self.wake = self.clock().timestamp() + seconds
        assert self.task is not None
        self.task.hold()
        if self._dead:
            raise Crash("asleep")


class Time:
    """Stands for the module `time` where leases, schedules, remembered calls and retries read it."""

    def __init__(self, clock: FakeClock, processes: list[Process]) -> None:
        self.clock, self.processes = clock, processes

    def time(self) -> float:
        return self.clock().timestamp()

    monotonic = time

    def sleep(self, seconds: float) -> None:
        for process in self.processes:
            if process.task is not None and process.task.thread is threading.current_thread():
                process.sleep(seconds)
                return
        self.clock.move(seconds=seconds)

    @property
    def host(self) -> str:
        own = (p.host for p in self.processes if p.task and p.task.thread is threading.current_thread())
        return next(own, "observer")


class Synced:
    """Files and folders as they were when they were last made durable."""

    def __init__(self) -> None:
        self.at: dict[str, tuple[int, int]] = {}

    def __call__(self, file: Any) -> None:
        number = file if isinstance(file, int) else file.fileno()
        state = os.fstat(number)
        self.at[str(Path(f"/proc/self/fd/{number}").readlink())] = state.st_mtime_ns, state.st_size

    def durable(self, path: Path) -> bool:
        if not path.exists():
            return False
        state = path.stat()
        folders = (path.parent, path.parent.parent)
        return self.at.get(str(path)) == (state.st_mtime_ns, state.st_size) and all(str(f) in self.at for f in folders)


@contextlib.contextmanager
def virtual(clock: FakeClock, processes: list[Process], seed: object, synced: Synced) -> Iterator[None]:
    """Time, sleep, heartbeats, hosts, ids and fsync are the schedule's. Draws and keys stay the system's."""
    instead, ids = Time(clock, processes), random.Random(f"ids of {seed}")

    @contextlib.contextmanager
    def heartbeat(store: Any, name: str, _every: float, extend: Callable[[Any], None]) -> Iterator[None]:
        beats = store.fault.beats
        beats.append((name, extend))
        try:
            yield
        finally:
            if (name, extend) in beats:
                beats.remove((name, extend))

    with pytest.MonkeyPatch.context() as patch:
        for module in (database, idempotency, schedule, leases, tenacity, tenacity.nap):
            patch.setattr(module, "time", instead)
        for module in (leases, attempts):
            patch.setattr(module, "heartbeat", heartbeat)
        patch.setattr(socket, "gethostname", lambda: instead.host)
        patch.setattr(secrets, "token_hex", lambda n=32: f"{ids.getrandbits(8 * n):0{2 * n}x}")
        patch.setattr(os, "fsync", synced)
        patch.setattr(Event, "from_body", lru_cache(4096)(Event.from_body))  # read anew at each look, or a sixth slower
        yield
