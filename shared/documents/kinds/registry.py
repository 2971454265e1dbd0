"""Every kind of signed answer that this version reads."""

from __future__ import annotations

from typing import Any

from shared.documents.answer import Answer, Kind
from shared.documents.kinds import calibration, linear_model, median, prediction, rectangle
from shared.documents.signing import VerifyingKey
from shared.errors import UnsupportedVersion

_KINDS: tuple[Kind[Any, Any], ...] = (
    calibration.KIND,
    median.KIND,
    rectangle.KIND,
    linear_model.KIND,
    prediction.KIND,
)
KINDS = {kind.name: kind for kind in _KINDS}


def trusted_answer(envelope: bytes, key: VerifyingKey, audience: str | None) -> tuple[Answer, str]:
    """(answer, SHA-256 of its payload) of an envelope: signature, form, version, key id, audience, kind, in this order.

    `audience` None skips that check. Raises the VerificationFailed of the rule that was broken.
    """
    answer, sha256 = Answer.trusted(envelope, key, audience)
    if answer.kind not in KINDS:
        raise UnsupportedVersion(
            f"This software does not know answers of kind '{answer.kind}'; a newer version may read it."
        )
    KINDS[answer.kind].check(answer)
    return answer, sha256
