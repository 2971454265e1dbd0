"""Every kind of answer: each module here that has a `KIND`."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from typing import Any

from labels_party import kinds
from labels_party.kinds.answer import DocumentKind

_MODULES = [import_module(f"{kinds.__name__}.{found.name}") for found in pkgutil.iter_modules(kinds.__path__)]
KINDS: dict[str, type[DocumentKind[Any]]] = {m.KIND.name: m.KIND for m in _MODULES if hasattr(m, "KIND")}
