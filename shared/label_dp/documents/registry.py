"""Registry of all kinds of signed answers that this version reads: modules of `label_dp.companions.kinds` with a
`KIND`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from label_dp.errors import UnsupportedVersion
from label_dp.named_modules import NamedModules

if TYPE_CHECKING:
    from label_dp.documents.answer import Answer
    from label_dp.documents.kind import Kind
    from label_dp.documents.signing import VerifyingKey

KINDS: NamedModules[Kind[Any, Any]] = NamedModules("label_dp.companions.kinds")


def trusted_answer(envelope: bytes, key: VerifyingKey, audience: str | None) -> tuple[Answer, str]:
    """Verify an answer: signature, form, version, key id, audience, kind, in this order; returns (answer, SHA-256 of
    its payload). `audience` None skips that check. Raises the VerificationFailed kind of the broken rule."""
    from label_dp.documents.answer import Answer

    answer, sha256 = Answer.trusted(envelope, key, audience)
    if answer.kind not in KINDS:
        raise UnsupportedVersion(
            f"This software does not know answers of kind '{answer.kind}'; a newer version may read it."
        )
    KINDS[answer.kind].check(answer)
    return answer, sha256
