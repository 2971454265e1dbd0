"""What the product and the standalone verifier say of the signed export of a chain, in one form."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from deploy.verify_standalone.audit import open_export
from deploy.verify_standalone.refusal import RefusedError, RuleError
from label_dp.audit.receipts import ReceiptChain
from label_dp.audit.rulebook import RuleBroken
from label_dp.audit.rules import check_rules
from label_dp.audit.store import read_export
from label_dp.documents.signing import SigningKey
from label_dp.errors import LabelDPError


@dataclass(frozen=True)
class Verdict:
    """`rule`: of the first event that breaks one; 0 where something else is wrong, None where nothing is."""

    rule: int | None
    why: str = ""


def product(envelope: bytes, key: SigningKey) -> Verdict:
    """What `audit verify EXPORT` says."""
    try:
        events = read_export(envelope, key.public).events
        check_rules(events)
        ReceiptChain.of(events, key.public)
    except RuleBroken as broken:
        return Verdict(broken.rule.number, broken.detail)
    except LabelDPError as refused:
        return Verdict(0, refused.detail)
    return Verdict(None)


def standalone(envelope: bytes, key: SigningKey, folder: Path) -> Verdict:
    """What `verify_standalone audit EXPORT` says, in this process."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    path = folder / "export.json"
    path.write_bytes(envelope)
    try:
        open_export(path, Ed25519PublicKey.from_public_bytes(key.public.raw), key.public.id)[1]
    except RuleError as broken:
        return Verdict(broken.rule, str(broken))
    except RefusedError as refused:
        return Verdict(0, str(refused))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError, RecursionError) as escaped:
        # its command line refuses these as well
        return Verdict(0, repr(escaped))
    return Verdict(None)
