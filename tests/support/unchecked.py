"""Documents with members that their form refuses, as whoever holds the key may sign them."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from label_dp.documents.signed import Document
from label_dp.domain import Domain
from label_dp.privacy import Delta, Epsilon, EpsilonSplit


def unchecked(form: type[Document], **members: Any) -> dict[str, Any]:
    """The document as it would be signed: `members`, and what `form` takes for the others."""
    defaults = {name: field.get_default(call_default_factory=True) for name, field in form.model_fields.items()}
    return {name: _plain(value) for name, value in (defaults | members).items()}


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", warnings=False)
    if isinstance(value, Domain | EpsilonSplit):
        return value.as_json()
    return str(value) if isinstance(value, Epsilon | Delta) else value
