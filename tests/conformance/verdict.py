"""Product and standalone verifier as clients of the kit, by the protocol of README.md.

python -m tests.conformance.verdict product|standalone COMMAND …
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deploy.verify_standalone.answer import verify_answer
from deploy.verify_standalone.audit import open_export
from deploy.verify_standalone.comparison import compare
from deploy.verify_standalone.envelope import load_key
from deploy.verify_standalone.message import verify_message
from deploy.verify_standalone.refusal import MISSHAPEN, RefusedError, RuleError, UnusableError
from label_dp import errors
from label_dp.audit.compare import ComparedStore, compare_parties
from label_dp.audit.heads import compare_exports
from label_dp.audit.receipts import ReceiptChain
from label_dp.audit.rulebook import RuleBroken
from label_dp.audit.rules import check_rules
from label_dp.audit.store import Export, read_export
from label_dp.documents import bundle
from label_dp.documents.registry import trusted_answer
from label_dp.documents.signing import VerifyingKey

ACCEPTED = "accepted"
UNCHECKED = "not-checked"
EXIT = {ACCEPTED: 0, UNCHECKED: 3}
CODES: dict[type[errors.LabelDPError], str] = {
    errors.SignatureInvalid: "signature",
    errors.UnsupportedVersion: "version",
    errors.AudienceMismatch: "audience",
    errors.DigestMismatch: "digest",
    errors.InvalidFile: "digest",  # a part is missing
}


@dataclass(frozen=True)
class Verdict:
    """A reason code of the protocol, and a sentence for people."""

    code: str
    why: str = ""


def arguments(words: Sequence[str]) -> argparse.Namespace:
    """Read the words of a command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("path", type=Path)
    parser.add_argument("--key", type=Path, required=True)
    parser.add_argument("--audience")
    parser.add_argument("--against", type=Path)
    parser.add_argument("--against-key", type=Path)
    return parser.parse_args(words)


def product(command: str, words: Sequence[str]) -> Verdict:
    """What the product says."""
    given = arguments(words)
    key = VerifyingKey.from_pem(given.key.read_bytes())
    try:
        if command == "verify-message":
            bundle.verify(given.path, key, given.audience)
        elif command == "verify-answer":
            trusted_answer(given.path.read_bytes(), key, given.audience)
        else:
            export = _read(given.path, key)
            if given.against:
                return _compared(export, key, given)
    except RuleBroken as broken:
        return Verdict(f"rule-{broken.rule.number}", broken.detail)
    except errors.LabelDPError as refused:
        found = next((code for kind, code in CODES.items() if isinstance(refused, kind)), "malformed")
        return Verdict(found, refused.detail)
    return Verdict(ACCEPTED)


def _read(path: Path, key: VerifyingKey) -> Export:
    export = read_export(path.read_bytes(), key)
    check_rules(export.events)
    ReceiptChain.of(export.events, key)
    return export


def _compared(one: Export, key: VerifyingKey, given: argparse.Namespace) -> Verdict:
    other_key = VerifyingKey.from_pem(given.against_key.read_bytes())
    other = _read(given.against, other_key)
    if other_key == key:
        found = compare_exports(one, other).findings
    else:
        here, there = (ComparedStore(e.events, k, "", e.made or "") for e, k in ((one, key), (other, other_key)))
        found = compare_parties(here, there).findings
    return Verdict("against" if found else ACCEPTED, str(found))


def standalone(command: str, words: Sequence[str]) -> Verdict:
    """What the standalone verifier says."""
    given = arguments(words)
    key, key_id = load_key(given.key)
    otherwise = "malformed"
    try:
        if command == "verify-message":
            verify_message(given.path, key, key_id, given.audience)
        elif command == "verify-answer":
            verify_answer(given.path, key, key_id, given.audience)
        else:
            found, _ = open_export(given.path, key, key_id)
            if given.against:
                other, _ = open_export(given.against, *load_key(given.against_key))
                otherwise = "against"
                compare(found, other)
    except RuleError as broken:
        return Verdict(f"rule-{broken.rule}", str(broken))
    except RefusedError as refused:
        return Verdict(otherwise if refused.code == "malformed" else refused.code, str(refused))
    except UnusableError as missing:
        return Verdict("digest", str(missing))
    except MISSHAPEN as error:
        return Verdict(otherwise, f"misshapen: {error}")
    return Verdict(ACCEPTED)


CLIENTS = {"product": product, "standalone": standalone}

if __name__ == "__main__":
    verdict = CLIENTS[sys.argv[1]](sys.argv[2], sys.argv[3:])
    sys.stdout.write(verdict.code + "\n")
    sys.stderr.write(verdict.why + "\n")
    sys.exit(EXIT.get(verdict.code, 1))
