"""What calls to a labels party cost: what they write to its objects and read there, and what they ask its database."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import sqlalchemy as sa

from label_dp.service.objects.folder import FolderObjects
from tests.support.labels import LabelsParty


class Costs:
    """Everything since the last `taken`, however the threads of the party took turns: each call of the store with its
    bytes, each statement with the length of every text and the size of every number, and SQLite's own work."""

    def __init__(self, party: LabelsParty) -> None:
        self._seen: Counter[tuple[Any, ...]] = Counter()
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
        """What came since the last time."""
        found, self._seen = self._seen, Counter()
        return found

    # --- parts --------------------------------------------------------------------------------------------

    def _watch(self, of: Any, name: str, told: Callable[..., tuple[Any, ...]]) -> None:
        real = getattr(of, name)

        def watched(*args: Any) -> Any:
            found = real(*args)
            self._seen[(type(of).__name__, name, *told(*args, found))] += 1
            return found

        setattr(of, name, watched)

    def _opened(self, name: str, real: Any) -> Any:
        @contextlib.contextmanager
        def opened(key: str) -> Iterator[Any]:
            with real(key) as file:
                yield file
                size = file.tell() if name == "writing" else file.size()
            self._seen["objects", name, _kind(key), size] += 1

        return opened

    def _statement(self, _connection: Any, _cursor: Any, statement: str, parameters: Any, _: Any, many: bool) -> None:
        for row in parameters if many else [parameters]:
            values = row.values() if isinstance(row, dict) else row
            sizes = tuple(len(v) if isinstance(v, str | bytes) else type(v).__name__ for v in values)
            self._seen["statement", statement, sizes] += 1

    def _connected(self, connection: Any, _record: Any) -> None:
        def step() -> None:
            self._seen["sqlite",] += 1

        connection.set_progress_handler(step, 1)


def _kind(key: str) -> str:
    return key.rpartition(".")[2]
