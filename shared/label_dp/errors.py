"""Typed errors of both parties.

Every error is a sentence: what was wrong, where, what to do. No error text may carry a label value (invariants
charge-for-labels and no-oracle): rows and rules are named, values never. ``label_dp.problems`` is the one map from
these types to HTTP problem bodies; ``exit_code`` is the command line's (1 refusal, 2 bad input or usage).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

CODE = re.compile(r"[a-z][a-z0-9-]{0,60}", re.ASCII)


def printable(text: str) -> str:
    """Escape control characters: names may be untrusted, and a terminal would obey them."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class LabelDPError(Exception):
    """Base of all deliberate errors. Each class of this module has its own name as `code`, in words as title, unless it
    defines others; `tests/unit/shared/test_problems.py` keeps the codes stable."""

    code: str = "internal"  # of a class; a refusal of another service carries that one's
    title: ClassVar[str] = "Internal error"
    exit_code: ClassVar[int] = 1

    def __init_subclass__(cls) -> None:
        if cls.__module__ == __name__:  # a part's own kinds are what they are derived from
            name = re.sub(r"(?<!^)(?=[A-Z])", "-", cls.__name__).lower()
            cls.code = vars(cls).get("code", name)
            cls.title = vars(cls).get("title", name.replace("-", " ").capitalize())

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail

    def extras(self) -> dict[str, object]:
        """Return public members of the problem body besides title, detail and code."""
        return {}


# --- bad input: exit code 2 --------------------------------------------------------------------------------


class InvalidInput(LabelDPError):
    """Input of the caller that is wrong."""

    exit_code = 2


class InvalidRequest(InvalidInput):
    """Malformed request: its JSON, a member, a query parameter."""

    def __init__(self, detail: str, places: Iterable[Mapping[str, str]] = ()) -> None:
        super().__init__(detail)
        self.places = list(places)[:20]

    def extras(self) -> dict[str, object]:
        return {"places": self.places} if self.places else {}


class InvalidEpsilon(InvalidInput):
    """Number that is no ε or δ."""

    title = "Invalid ε"


class InvalidDomain(InvalidInput):
    """Malformed label domain, or value outside it."""

    title = "Invalid label domain"


class InvalidPrior(InvalidInput):
    """Prior that is no distribution over the labels, or may not be used."""


class InvalidLoss(InvalidInput):
    """Loss that is unknown, or does not fit the labels."""


class InvalidMechanism(InvalidInput):
    """Mechanism, or options of it, that are impossible here."""


class InvalidFile(InvalidInput):
    """File that is missing, unreadable or malformed."""

    title = "Unreadable or malformed file"


class InvalidTable(InvalidInput):
    """Table with wrong columns or cells."""


class InvalidSettings(InvalidInput):
    """Setting that is unknown or impossible."""


@dataclass(frozen=True)
class RowProblem:
    """One rejected row: its 0-based position, the field and the rule it broke. Never the value.

    `number` is what callers see: rows of data counted from 1, without a header. `line`, where the upload was text: the
    line on which the row begins, counting from 1. `file`, where a table is several files: the one with the row.
    """

    row: int
    field: str
    rule: str
    line: int | None = None
    file: str | None = None

    @property
    def number(self) -> int:
        return self.row + 1

    def as_json(self) -> dict[str, object]:
        place: dict[str, object] = {} if self.line is None else {"line": self.line}
        place |= {} if self.file is None else {"file": self.file}
        return {"row": self.number, **place, "field": self.field, "rule": self.rule}


class InvalidRows(InvalidInput):
    """Rows of an upload that break a rule; nothing of the upload was stored."""

    title = "Rows rejected"
    shown: ClassVar[int] = 20

    def __init__(self, problems: Iterable[RowProblem], total: int | None = None) -> None:
        self.problems = list(problems)[: self.shown]
        self.total = len(self.problems) if total is None else total
        first = self.problems[0]
        rest = f" (and {self.total - 1} more rows)" if self.total > 1 else ""
        line = f", line {first.line}" if first.line is not None else ""
        line += f" of '{first.file}'" if first.file is not None else ""
        super().__init__(
            f"Row {first.number} (counting from 1){line}, field '{first.field}': {first.rule}{rest}. "
            "Nothing of it was stored; correct the rows and try again."
        )

    def extras(self) -> dict[str, object]:
        return {"rejected": self.total, "rows": [p.as_json() for p in self.problems]}


class InvalidEvents(InvalidRows):
    """Events of an upload that break a rule; nothing of the upload was stored."""

    title = "Events rejected"


# --- refusals: exit code 1 ---------------------------------------------------------------------------------


class Refusal(LabelDPError):
    """Refusal of well-formed input."""

    code = "refused"
    title = "Refused"
    exit_code = 1


class BudgetExceeded(Refusal):
    """Charge that the ledger does not allow. Figures are public: they come from the ledger alone."""

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
    """Approval or refusal of a four-eyes release by the person who requested it."""

    title = "Somebody else must decide this"


class AlreadyReleased(Refusal):
    """Refusal of an unrequested further release of a batch."""

    title = "Batch already carries a release"


class OverlappingBatch(Refusal):
    """Refusal of a batch that shares ids with another."""

    title = "Batch overlaps another"


class MissingLabels(Refusal):
    """Refusal of a batch with missing labels."""

    title = "Labels are missing"


class VerificationFailed(Refusal):
    """Document that was not accepted; nothing of it was parsed or stored."""

    title = "Message refused"


class SignatureInvalid(VerificationFailed):
    """Wrong key, type or signature of a document."""

    title = "Signature does not verify"


class DigestMismatch(VerificationFailed):
    """File that differs from its signed manifest."""

    title = "Bytes do not match the signed manifest"


class AudienceMismatch(VerificationFailed):
    """Document for other audiences."""

    title = "Message is for somebody else"


class UnsupportedVersion(VerificationFailed):
    """Document of a newer format."""

    title = "Message format is too new"


class MalformedManifest(VerificationFailed):
    """Signed document of the wrong form."""

    title = "Manifest is malformed"


class MalformedReceipt(VerificationFailed):
    """Receipt, or public key for receipts, that is malformed, or a receipt for another document."""

    title = "Receipt is malformed"


class MalformedHandOver(VerificationFailed):
    """Malformed hand-over of a key."""

    title = "Hand-over is malformed"


class MalformedInvitation(VerificationFailed):
    """Malformed invitation of a party."""

    title = "Invitation is malformed"


class MalformedAnswer(VerificationFailed):
    """Malformed answer, or result of one."""

    title = "Answer is malformed"


class ReceiptConflict(Refusal):
    """Different receipt at this position: one of the stores has two histories."""

    title = "Another receipt is known"


class NoReceiptKey(Refusal):
    """Missing key for the receipts of this audience; nothing is trusted on first use."""

    title = "No receipt key is registered"


class ReplayConflict(VerificationFailed):
    """Release or answer id that came before with another manifest or document."""

    title = "Id seen with another document"


class Contradicted(VerificationFailed):
    """Document that contradicts its population or the ε stated before."""

    title = "Contradicts what was accepted"


class AuditChainBroken(Refusal):
    """Audit store or export that does not verify."""

    title = "Audit store does not verify"


class RemoteProblem(LabelDPError):
    """Problem body of a service. `code` is its stable code, also in `problem_code`, if it has one; `status` is the HTTP
    status."""

    title = "The other side refused"

    def __init__(self, detail: str, status: int = 502, body: Mapping[str, object] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.problem = dict(body or {})
        self.problem_code = str(self.problem.get("code", "unknown"))
        if CODE.fullmatch(self.problem_code):
            self.code = self.problem_code

    @classmethod
    def from_body(cls, status: int, body: object) -> RemoteProblem:
        """Parse any JSON reply."""
        members = body if isinstance(body, dict) else {}
        return cls(str(members.get("detail", f"The service answered with status {status}.")), status, members)


# --- state, access, infrastructure -------------------------------------------------------------------------


class Conflict(LabelDPError):
    """Call that does not fit the state of its object (an open batch, a published release ...)."""

    title = "Conflict with the current state"


class DuplicateId(Conflict):
    """Second record of an id. It does not show whether the value is the same (invariant no-oracle)."""

    title = "Id already has a record"

    def __init__(self, detail: str, rows: Iterable[RowProblem] = ()) -> None:
        super().__init__(detail)
        self.rows = list(rows)[: InvalidRows.shown]

    def extras(self) -> dict[str, object]:
        return {"rows": [p.as_json() for p in self.rows]} if self.rows else {}


class IdempotencyConflict(LabelDPError):
    """Idempotency-Key of another request."""

    title = "Idempotency key reused with another body"


class IdempotencyInFlight(Conflict):
    """Call whose Idempotency-Key belongs to one that is still being answered."""

    code = "in-flight"
    title = "The same call is in flight"


class NotFound(LabelDPError):
    """Unknown object, or one of another caller: a uniform denial."""


class TooManyCalls(LabelDPError):
    """Excess of calls with one key; `seconds` until the next one is accepted."""

    title = "Too many calls with this API key"

    def __init__(self, detail: str, seconds: int = 60) -> None:
        super().__init__(detail)
        self.seconds = seconds


class Unauthenticated(LabelDPError):
    """Missing or invalid key. `reason` and `key_id` (of a formerly valid key) are for the log, not for the caller."""

    title = "No valid API key"

    def __init__(self, detail: str, reason: str = "no key", key_id: str | None = None) -> None:
        super().__init__(detail)
        self.reason, self.key_id = reason, key_id


class TooLarge(InvalidInput):
    """Body or table above the limit."""

    title = "Upload too large"


class UnsupportedMediaType(InvalidInput):
    """Content type that the call does not read."""

    title = "Unsupported content type"


class PreconditionFailed(Conflict):
    """Version in If-Match that is gone."""


class RangeNotSatisfiable(InvalidInput):
    """Range outside the file."""

    title = "Range cannot be served"


class RequestTimeout(LabelDPError):
    """Body that the caller stopped sending, or sent too slowly."""

    title = "Upload too slow"


class Unavailable(LabelDPError):
    """Failure below us (storage, randomness, the other party); nothing was released."""

    title = "Temporarily unavailable"


class Busy(Unavailable):
    """Limit of concurrent calls of this kind."""


class RandomnessUnavailable(Unavailable):
    """Failure of the operating system's randomness; nothing was drawn."""

    title = "The operating system gave no randomness"


class EpsilonNotProved(LabelDPError):
    """Fault of this code or of a library: a draw would cost more than was charged. Nothing was drawn."""

    title = "The charged ε could not be proved"
