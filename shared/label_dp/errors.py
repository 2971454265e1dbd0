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
    """Control characters as escapes: names may come from elsewhere, and a terminal would obey them."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class LabelDPError(Exception):
    """Base of everything this project raises on purpose. The kinds of this module have their own name as `code`, and
    that in words as title, unless they say otherwise; `tests/unit/shared/test_problems.py` holds the codes still."""

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
        """Public members of the problem body besides title, detail and code."""
        return {}


# --- bad input: exit code 2 --------------------------------------------------------------------------------


class InvalidInput(LabelDPError):
    """Input of the caller that is wrong."""

    exit_code = 2


class InvalidRequest(InvalidInput):
    """The request itself is malformed: its JSON, a member, a query parameter."""

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
    """A prior that is no distribution over the labels, or may not be used."""


class InvalidLoss(InvalidInput):
    """A loss that is unknown, or does not fit the labels."""


class InvalidMechanism(InvalidInput):
    """A mechanism, or its options, that cannot be had here."""


class InvalidFile(InvalidInput):
    """File that is missing, unreadable or malformed."""

    title = "Unreadable or malformed file"


class InvalidTable(InvalidInput):
    """Columns or cells of a table that are not as they must be."""


class InvalidSettings(InvalidInput):
    """The environment holds a setting that is unknown or impossible."""


@dataclass(frozen=True)
class RowProblem:
    """One rejected row: its 0-based position, the field and the rule it broke. Never the value.

    `number` is what callers see: rows of data counted from 1, without a header. `line`, where the upload was text: the
    line on which the row begins, counting from 1.
    """

    row: int
    field: str
    rule: str
    line: int | None = None

    @property
    def number(self) -> int:
        return self.row + 1

    def as_json(self) -> dict[str, object]:
        place = {} if self.line is None else {"line": self.line}
        return {"row": self.number, **place, "field": self.field, "rule": self.rule}


class InvalidRows(InvalidInput):
    """Rows of an upload break a rule; nothing of the upload was stored."""

    title = "Rows rejected"
    shown: ClassVar[int] = 20

    def __init__(self, problems: Iterable[RowProblem], total: int | None = None) -> None:
        self.problems = list(problems)[: self.shown]
        self.total = len(self.problems) if total is None else total
        first = self.problems[0]
        rest = f" (and {self.total - 1} more rows)" if self.total > 1 else ""
        line = f", line {first.line}" if first.line is not None else ""
        super().__init__(
            f"Row {first.number} (counting from 1){line}, field '{first.field}': {first.rule}{rest}. "
            "Nothing of it was stored; correct the rows and try again."
        )

    def extras(self) -> dict[str, object]:
        return {"rejected": self.total, "rows": [p.as_json() for p in self.problems]}


# --- refusals: exit code 1 ---------------------------------------------------------------------------------


class Refusal(LabelDPError):
    """Refusal of well-formed input."""

    code = "refused"
    title = "Refused"
    exit_code = 1


class BudgetExceeded(Refusal):
    """The ledger does not allow the charge. Figures are public: they come from the ledger alone."""

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
    """A message was not accepted; nothing of it was parsed or stored."""

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
    """A receiver's receipt, or the public key for receipts, is not one, or not of what it was sent for."""

    title = "Receipt is malformed"


class MalformedHandOver(VerificationFailed):
    """A signed hand-over of a key is not one."""

    title = "Hand-over is malformed"


class MalformedAnswer(VerificationFailed):
    """A signed answer, or its result, is not one."""

    title = "Answer is malformed"


class ReceiptConflict(Refusal):
    """Another receipt stands where this one belongs: somebody's store has two histories."""

    title = "Another receipt is known"


class NoReceiptKey(Refusal):
    """The owner has registered no key for the receipts of this audience; nothing is trusted on first use."""

    title = "No receipt key is registered"


class ReplayConflict(VerificationFailed):
    """The same release or answer id came with another manifest or document."""

    title = "Id seen with another document"


class Contradicted(VerificationFailed):
    """What it states of its population or of the ε spent does not go with what was accepted before."""

    title = "Contradicts what was accepted"


class AuditChainBroken(Refusal):
    """Audit store or export that does not verify."""

    title = "Audit store does not verify"


class RemoteProblem(LabelDPError):
    """A problem body that a service answered with; `code` is the stable one that it gave, `problem_code` too, also
    where that is none; `status` the HTTP status."""

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
        """From whatever JSON came back."""
        known = body if isinstance(body, dict) else {}
        return cls(str(known.get("detail", f"The service answered with status {status}.")), status, known)


# --- state, access, infrastructure -------------------------------------------------------------------------


class Conflict(LabelDPError):
    """The call does not fit the state of its object (an open batch, a published release ...)."""

    title = "Conflict with the current state"


class DuplicateId(Conflict):
    """A second record of an id. Says nothing on whether the value is the same (invariant no-oracle)."""

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
    """The first call with this Idempotency-Key is still being answered."""

    code = "in-flight"
    title = "The same call is in flight"


class NotFound(LabelDPError):
    """Also given for objects that exist but are not the caller's: a uniform denial."""


class TooManyCalls(LabelDPError):
    """Of one key in a short time; `seconds` until the next one is taken."""

    title = "Too many calls with this API key"

    def __init__(self, detail: str, seconds: int = 60) -> None:
        super().__init__(detail)
        self.seconds = seconds


class Unauthenticated(LabelDPError):
    """`reason` and `key_id` (of a key that was valid once) are for the log; the caller is told neither."""

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
    """What If-Match names is not there any more."""


class RangeNotSatisfiable(InvalidInput):
    """Range outside the file."""

    title = "Range cannot be served"


class RequestTimeout(LabelDPError):
    """The caller stopped sending in the middle of a body, or sent it too slowly."""

    title = "Upload too slow"


class Unavailable(LabelDPError):
    """Something below us failed (storage, randomness, the other party); nothing was released."""

    title = "Temporarily unavailable"


class Busy(Unavailable):
    """As many calls of this kind as the service takes at once are being answered."""


class RandomnessUnavailable(Unavailable):
    """Failure of the operating system's randomness; nothing was drawn."""

    title = "The operating system gave no randomness"


class EpsilonNotProved(LabelDPError):
    """A fault of this code or of a library: a draw would cost more than was charged. Nothing was drawn."""

    title = "The charged ε could not be proved"
