"""Every kind of signed answer that this version reads: each module here that has a `KIND`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shared.documents import kinds
from shared.errors import UnsupportedVersion
from shared.named_modules import NamedModules

if TYPE_CHECKING:
    from shared.documents.answer import Answer
    from shared.documents.kind import Kind
    from shared.documents.signing import VerifyingKey

KINDS: NamedModules[Kind[Any, Any]] = NamedModules(kinds)


def trusted_answer(envelope: bytes, key: VerifyingKey, audience: str | None) -> tuple[Answer, str]:
    """(answer, SHA-256 of its payload) of an envelope: signature, form, version, key id, audience, kind, in this order.

    `audience` None skips that check. Raises the VerificationFailed of the rule that was broken.
    """
    from shared.documents.answer import Answer

    answer, sha256 = Answer.trusted(envelope, key, audience)
    if answer.kind not in KINDS:
        raise UnsupportedVersion(
            f"This software does not know answers of kind '{answer.kind}'; a newer version may read it."
        )
    KINDS[answer.kind].check(answer)
    return answer, sha256
