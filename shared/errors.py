"""Typed errors of both parties.

Every error is a sentence: what was wrong, where, what to do. No error text may carry a label value
(invariants 1 and 8): rows and rules are named, values never. ``shared.problems`` is the one map from these
types to HTTP problem bodies; ``exit_code`` is the command line's (1 refusal, 2 bad input or usage).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar


class LabelDPError(Exception):
    """Base of everything this project raises on purpose."""

    code: ClassVar[str] = "internal"
    title: ClassVar[str] = "Internal error"
    exit_code: ClassVar[int] = 1

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail

    def extras(self) -> dict[str, object]:
        """Public members of the problem body besides title, detail and code."""
        return {}


# --- bad input: exit code 2 --------------------------------------------------------------------------------


class InvalidInput(LabelDPError):
    code = "invalid-input"
    title = "Invalid input"
    exit_code = 2


class InvalidRequest(InvalidInput):
    """The request itself is malformed: its JSON, a member, a query parameter."""

    code = "invalid-request"
    title = "Invalid request"

    def __init__(self, detail: str, places: Iterable[Mapping[str, str]] = ()) -> None:
        super().__init__(detail)
        self.places = list(places)[:20]

    def extras(self) -> dict[str, object]:
        return {"places": self.places} if self.places else {}


class InvalidEpsilon(InvalidInput):
    code = "invalid-epsilon"
    title = "Invalid ε"


class InvalidDomain(InvalidInput):
    code = "invalid-domain"
    title = "Invalid label domain"


class InvalidPrior(InvalidInput):
    code = "invalid-prior"
    title = "Invalid prior"


class InvalidLoss(InvalidInput):
    code = "invalid-loss"
    title = "Invalid loss"


class InvalidMechanism(InvalidInput):
    code = "invalid-mechanism"
    title = "Invalid mechanism"


class InvalidFile(InvalidInput):
    code = "invalid-file"
    title = "Unreadable or malformed file"


class InvalidTable(InvalidInput):
    code = "invalid-table"
    title = "Invalid table"


class InvalidSettings(InvalidInput):
    code = "invalid-settings"
    title = "Invalid settings"


@dataclass(frozen=True)
class RowProblem:
    """One rejected row: its 0-based position, the field and the rule it broke. Never the value.

    `line`, where the upload was text: the line on which the row begins, counting from 1.
    """

    row: int
    field: str
    rule: str
    line: int | None = None

    def as_json(self) -> dict[str, object]:
        place = {} if self.line is None else {"line": self.line}
        return {"row": self.row, **place, "field": self.field, "rule": self.rule}


class InvalidRows(InvalidInput):
    """Rows of an upload break a rule; nothing of the upload was stored."""

    code = "invalid-rows"
    title = "Rows rejected"
    shown: ClassVar[int] = 20

    def __init__(self, problems: Iterable[RowProblem], total: int | None = None) -> None:
        self.problems = list(problems)[: self.shown]
        self.total = len(self.problems) if total is None else total
        first = self.problems[0]
        rest = f" (and {self.total - 1} more rows)" if self.total > 1 else ""
        line = f", line {first.line}" if first.line is not None else ""
        super().__init__(
            f"Row {first.row} (counting from 0){line}, field '{first.field}': {first.rule}{rest}. "
            "Nothing of it was stored; correct the rows and try again."
        )

    def extras(self) -> dict[str, object]:
        return {"rejected": self.total, "rows": [p.as_json() for p in self.problems]}


# --- refusals: exit code 1 ---------------------------------------------------------------------------------


class Refusal(LabelDPError):
    code = "refused"
    title = "Refused"
    exit_code = 1


class BudgetExceeded(Refusal):
    """The ledger does not allow the charge. Figures are public: they come from the ledger alone."""

    code = "budget-exceeded"
    title = "Privacy budget exceeded"

    def __init__(
        self, detail: str, *, asked: str, spent: str, lifetime: str, delta: dict[str, str] | None = None
    ) -> None:
        super().__init__(detail)
        self.asked, self.spent, self.lifetime, self.delta = asked, spent, lifetime, delta or {}

    def extras(self) -> dict[str, object]:
        epsilon = {"epsilon_asked": self.asked, "epsilon_spent": self.spent, "epsilon_lifetime": self.lifetime}
        return {**epsilon, **self.delta}


class SecondPersonNeeded(Refusal):
    """A release of a four-eyes population is approved or declined by somebody else than who asked for it."""

    code = "second-person-needed"
    title = "Somebody else must decide this"


class AlreadyReleased(Refusal):
    code = "already-released"
    title = "Batch already carries a release"


class OverlappingBatch(Refusal):
    code = "overlapping-batch"
    title = "Batch overlaps another"


class MissingLabels(Refusal):
    code = "missing-labels"
    title = "Labels are missing"


class VerificationFailed(Refusal):
    """A message was not accepted; nothing of it was parsed or stored."""

    code = "verification-failed"
    title = "Message refused"


class SignatureInvalid(VerificationFailed):
    code = "signature-invalid"
    title = "Signature does not verify"


class DigestMismatch(VerificationFailed):
    code = "digest-mismatch"
    title = "Bytes do not match the signed manifest"


class AudienceMismatch(VerificationFailed):
    code = "audience-mismatch"
    title = "Message is for somebody else"


class UnsupportedVersion(VerificationFailed):
    code = "unsupported-version"
    title = "Message format is too new"


class MalformedManifest(VerificationFailed):
    code = "malformed-manifest"
    title = "Manifest is malformed"


class MalformedReceipt(VerificationFailed):
    """A receiver's receipt, or the public key for receipts, is not one, or not of what it was sent for."""

    code = "malformed-receipt"
    title = "Receipt is malformed"


class MalformedAnswer(VerificationFailed):
    """A signed answer, or its result, is not one."""

    code = "malformed-answer"
    title = "Answer is malformed"


class ReceiptConflict(Refusal):
    """Another receipt stands where this one belongs: somebody's store has two histories."""

    code = "receipt-conflict"
    title = "Another receipt is known"


class NoReceiptKey(Refusal):
    """The owner has registered no key for the receipts of this audience; nothing is trusted on first use."""

    code = "no-receipt-key"
    title = "No receipt key is registered"


class ReplayConflict(VerificationFailed):
    """The same release or answer id came with another manifest or document."""

    code = "replay-conflict"
    title = "Id seen with another document"


class Contradicted(VerificationFailed):
    """What it states of its population or of the ε spent does not go with what was accepted before."""

    code = "contradicted"
    title = "Contradicts what was accepted"


class AuditChainBroken(Refusal):
    code = "audit-chain-broken"
    title = "Audit store does not verify"


class RemoteProblem(LabelDPError):
    """A problem body that a service answered with; `problem_code` is its stable code, `status` the HTTP status."""

    code = "remote-problem"
    title = "The other side refused"

    def __init__(self, detail: str, status: int = 502, body: Mapping[str, object] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.problem = dict(body or {})
        self.problem_code = str(self.problem.get("code", "unknown"))

    @classmethod
    def from_body(cls, status: int, body: object) -> RemoteProblem:
        """From whatever JSON came back."""
        known = body if isinstance(body, dict) else {}
        return cls(str(known.get("detail", f"The service answered with status {status}.")), status, known)


# --- state, access, infrastructure -------------------------------------------------------------------------


class Conflict(LabelDPError):
    """The call does not fit the state of its object (an open batch, a published release ...)."""

    code = "conflict"
    title = "Conflict with the current state"


class DuplicateId(Conflict):
    """A second record of an id. Says nothing on whether the value is the same (invariant 8)."""

    code = "duplicate-id"
    title = "Id already has a record"

    def __init__(self, detail: str, rows: Iterable[RowProblem] = ()) -> None:
        super().__init__(detail)
        self.rows = list(rows)[: InvalidRows.shown]

    def extras(self) -> dict[str, object]:
        return {"rows": [p.as_json() for p in self.rows]} if self.rows else {}


class IdempotencyConflict(LabelDPError):
    code = "idempotency-conflict"
    title = "Idempotency key reused with another body"


class IdempotencyInFlight(Conflict):
    """The first call with this Idempotency-Key is still being answered."""

    code = "in-flight"
    title = "The same call is in flight"


class NotFound(LabelDPError):
    """Also given for objects that exist but are not the caller's: a uniform denial."""

    code = "not-found"
    title = "Not found"


class Unauthenticated(LabelDPError):
    """`reason` and `key_id` (of a key that was valid once) are for the log; the caller is told neither."""

    code = "unauthenticated"
    title = "No valid API key"

    def __init__(self, detail: str, reason: str = "no key", key_id: str | None = None) -> None:
        super().__init__(detail)
        self.reason, self.key_id = reason, key_id


class TooLarge(InvalidInput):
    code = "too-large"
    title = "Upload too large"


class UnsupportedMediaType(InvalidInput):
    code = "unsupported-media-type"
    title = "Unsupported content type"


class RangeNotSatisfiable(InvalidInput):
    code = "range-not-satisfiable"
    title = "Range cannot be served"


class RequestTimeout(LabelDPError):
    """The caller stopped sending in the middle of a body, or sent it too slowly."""

    code = "request-timeout"
    title = "Upload too slow"


class Unavailable(LabelDPError):
    """Something below us failed (storage, randomness, the other party); nothing was released."""

    code = "unavailable"
    title = "Temporarily unavailable"


class Busy(Unavailable):
    """As many calls of this kind as the service takes at once are being answered."""

    code = "busy"
    title = "Busy"


class RandomnessUnavailable(Unavailable):
    code = "randomness-unavailable"
    title = "The operating system gave no randomness"


class EpsilonNotProved(LabelDPError):
    """A fault of this code or of a library: a draw would cost more than was charged. Nothing was drawn."""

    code = "epsilon-not-proved"
    title = "The charged ε could not be proved"
