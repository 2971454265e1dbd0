"""What either verifier says of a signed document: the product's readers, and the standalone one."""

from __future__ import annotations

import json
from typing import Any

from deploy.verify_standalone.answer import open_answer
from deploy.verify_standalone.message import open_manifest
from deploy.verify_standalone.receipts import open_receipt
from deploy.verify_standalone.refusal import MISSHAPEN, RefusedError
from label_dp.documents.manifest import Manifest
from label_dp.documents.receipt import open_receipt as product_receipt
from label_dp.documents.registry import trusted_answer
from label_dp.documents.signing import ANSWER_TYPE, MANIFEST_TYPE, RECEIPT_TYPE, SigningKey
from label_dp.errors import VerificationFailed

ACCEPTED = ""
ME = "features-party"


def verdicts(name: str, document: Any, key: SigningKey) -> tuple[str, str]:
    """(the product's, the standalone verifier's), each ACCEPTED or why it refuses. Whatever else they raise escapes.

    `name`: of a golden document, which says of which type it is signed.
    """
    kind = name.split(":")[0]
    envelope = key.sign({"message": MANIFEST_TYPE, "receipt": RECEIPT_TYPE}.get(kind, ANSWER_TYPE), document)
    return product(kind, envelope, key), standalone(kind, envelope, key)


def product(kind: str, envelope: bytes, key: SigningKey) -> str:
    try:
        if kind == "receipt":
            product_receipt(envelope, key.public)
        else:
            (Manifest.trusted if kind == "message" else trusted_answer)(envelope, key.public, ME)
    except VerificationFailed as error:
        return error.detail
    return ACCEPTED


def standalone(kind: str, envelope: bytes, key: SigningKey) -> str:
    try:
        if kind == "receipt":
            open_receipt(1, json.loads(envelope), key.public.key, key.public.id)
        else:
            (open_manifest if kind == "message" else open_answer)(envelope, key.public.key, key.public.id, ME)
    except RefusedError as error:
        return str(error)
    except MISSHAPEN as error:
        return f"misshapen: {error}"
    return ACCEPTED
