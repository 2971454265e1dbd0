"""Registry of a party's kinds of charged work; some are made on first use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from labels_party.work.kind import WorkKind


class Registered(Mapping[str, WorkKind[Any]]):
    """Kinds by name. `register_later` (once) adds entries from which kinds are made on first use."""

    def __init__(self) -> None:
        self._made: dict[str, WorkKind[Any]] = {}
        self._later: Mapping[str, Any] = {}
        self._make: Callable[[Any], WorkKind[Any]] = lambda kind: kind

    def register(self, kind: WorkKind[Any]) -> None:
        self._made[kind.name] = kind

    def register_later(self, later: Mapping[str, Any], make: Callable[[Any], WorkKind[Any]]) -> None:
        self._later, self._make = later, make

    def __getitem__(self, name: str) -> WorkKind[Any]:
        if name not in self._made:
            self._made[name] = self._make(self._later[name])
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter({**dict.fromkeys(self._made), **dict.fromkeys(self._later)})

    def __len__(self) -> int:
        return len(list(iter(self)))
