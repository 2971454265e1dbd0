"""Registries of a package's modules by name; a module is loaded when it is looked up."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, MutableMapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeVar

T = TypeVar("T")


def installed(name: str) -> Any:
    """Import the module `name` of an optional part; None if the part is not installed."""
    try:
        return import_module(name) if find_spec(name) is not None else None
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        return None


class NamedModules(MutableMapping[str, T]):
    """The `KIND` of each module of `package` that has one, by its `name`, which is the module's with hyphens; none of a
    package that is not installed.

    To go through all of them loads every module; a lookup loads one, and none that is not in the package.
    """

    def __init__(self, package: str) -> None:
        self._package = package
        self._found: dict[str, T] = {}
        place = installed(package)
        modules = () if place is None else pkgutil.iter_modules(place.__path__)
        self._waiting = {module.name.replace("_", "-"): module.name for module in modules}

    def _load(self, name: str) -> None:
        module = self._waiting.get(name)
        if module is None:
            return
        kind = getattr(import_module(f"{self._package}.{module}"), "KIND", None)
        if kind is not None:
            assert kind.name == name, f"the kind '{kind.name}' is in a module of another name"
            self._found.setdefault(name, kind)
        self._waiting.pop(name, None)  # last, for threads that look at the same time

    def __getitem__(self, name: str) -> T:
        if name not in self._found:
            self._load(name)
        return self._found[name]

    def __setitem__(self, name: str, kind: T) -> None:
        self._found[name] = kind

    def __delitem__(self, name: str) -> None:
        del self._found[name]

    def __iter__(self) -> Iterator[str]:
        for name in list(self._waiting):
            self._load(name)
        return iter(sorted(self._found))

    def __len__(self) -> int:
        return len(list(iter(self)))
