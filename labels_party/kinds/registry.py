"""Every kind of answer: each module here that has a `KIND`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from label_dp.named_modules import NamedModules
from labels_party import kinds

if TYPE_CHECKING:
    from labels_party.kinds.answer import DocumentKind

KINDS: NamedModules[type[DocumentKind[Any]]] = NamedModules(kinds)
