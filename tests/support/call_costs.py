"""What calls to a labels party cost: what they write to its objects and read there, and what they ask its database."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import sqlalchemy as sa

from label_dp.store.objects.folder import FolderObjects
from tests.support.labels import LabelsParty

STEPS = 1 << 60  # of SQLite, more than any test takes


class Costs:
    """Everything since the last `taken`, however the threads of the party took turns: each call of the store with its
    bytes, each statement with the length of every text and the size of every number, and SQLite's own work."""

    def __init__(self, party: LabelsParty) -> None:
        self._services = party.services
        self._seen: Counter[tuple[Any, ...]] = Counter()
        self._lock = threading.Lock()  # `+= 1` of two threads may count one
        self._left = itertools.repeat(0, STEPS)  # SQLite's: 0 goes on, and no Python runs at each of thousands
        self._steps = STEPS
        self._wait()
        objects: Any = party.services.vault.objects
        for name in ("writing", "reading"):
            setattr(objects, name, self._opened(name, getattr(objects, name)))
        self._watch(objects, "mapped", lambda key, found: (_kind(key), len(found)))
        self._watch(objects, "delete", lambda key, _: (_kind(key),))
        self._watch(objects, "listed", lambda prefix, found: (bool(prefix), len(found)))
        if isinstance(objects, FolderObjects):
            self._watch(objects, "adopt", lambda key, _path, _: (_kind(key), objects.path(key).stat().st_size))
        else:
            for name in ("send", "fetch"):
                self._watch(objects.bucket, name, lambda key, file, _: (_kind(key), file.tell()))
            self._watch(objects.bucket, "delete", lambda key, _: (_kind(key),))
        engine = party.services.database.engine
        engine.dispose()  # connections from now on are watched
        sa.event.listen(engine, "before_cursor_execute", self._statement)
        if engine.dialect.name == "sqlite":
            sa.event.listen(engine, "connect", self._connected)

    def taken(self) -> Counter[tuple[Any, ...]]:
        """What came since the last time, with what calls left to threads: the use of a key that is noted once a day,
        and merges."""
        self._wait()
        with self._lock:
            found, self._seen = self._seen, Counter()
            steps, self._steps = self._steps, self._left.__length_hint__()
            if steps > self._steps:
                found["sqlite",] = steps - self._steps
        return found

    # --- parts --------------------------------------------------------------------------------------------

    def _wait(self) -> None:
        self._services.apikeys.wait()
        self._services.intake.compaction.wait()

    def _count(self, *of: Any) -> None:
        with self._lock:
            self._seen[of] += 1

    def _watch(self, of: Any, name: str, told: Callable[..., tuple[Any, ...]]) -> None:
        real = getattr(of, name)

        def watched(*args: Any) -> Any:
            found = real(*args)
            self._count(type(of).__name__, name, *told(*args, found))
            return found

        setattr(of, name, watched)

    def _opened(self, name: str, real: Any) -> Any:
        @contextlib.contextmanager
        def opened(key: str) -> Iterator[Any]:
            with real(key) as file:
                yield file
                size = file.tell() if name == "writing" else file.size()
            self._count("objects", name, _kind(key), size)

        return opened

    def _statement(self, _connection: Any, _cursor: Any, statement: str, parameters: Any, _: Any, many: bool) -> None:
        for row in parameters if many else [parameters]:
            values = row.values() if isinstance(row, dict) else row
            sizes = tuple(len(v) if isinstance(v, str | bytes) else type(v).__name__ for v in values)
            self._count("statement", statement, sizes)

    def _connected(self, connection: Any, _record: Any) -> None:
        connection.set_progress_handler(self._left.__next__, 1)


def _kind(key: str) -> str:
    return key.rpartition(".")[2]
