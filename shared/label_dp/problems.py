"""The one map from typed errors to RFC 9457 problem bodies."""

from __future__ import annotations

from typing import Any

from label_dp import errors as e

PROBLEM_JSON = "application/problem+json"

# the most specific class that matches decides
STATUS: dict[type[e.LabelDPError], int] = {
    e.TooLarge: 413,
    e.UnsupportedMediaType: 415,
    e.PreconditionFailed: 412,
    e.RangeNotSatisfiable: 416,
    e.InvalidInput: 422,
    e.InvalidEvents: 400,  # the Event & Conversion API knows no 422
    e.InvalidSettings: 503,  # of the environment that the service runs in, not of what its caller sent
    e.BudgetExceeded: 403,
    e.SecondPersonNeeded: 403,
    e.VerificationFailed: 422,
    e.Refusal: 409,
    e.Conflict: 409,
    e.IdempotencyConflict: 422,
    e.NotFound: 404,
    e.Unauthenticated: 401,
    e.RequestTimeout: 408,
    e.TooManyCalls: 429,
    e.Unavailable: 503,
    e.RemoteProblem: 502,
    e.LabelDPError: 500,
}


def status_of(error: e.LabelDPError) -> int:
    """Return the HTTP status of an error."""
    return status_of_kind(type(error))


def status_of_kind(kind: type[e.LabelDPError]) -> int:
    """Return the HTTP status of an error class."""
    return next(STATUS[base] for base in kind.__mro__ if base in STATUS)


def problem(error: e.LabelDPError) -> tuple[int, dict[str, Any]]:
    """(HTTP status, problem body) of a typed error; `code` is stable, `detail` is for people."""
    status, code = status_of(error), type(error).code  # what another service refused is our refusal, not its
    body: dict[str, Any] = {"type": f"urn:label-dp:{code}", "title": error.title, "status": status}
    body |= {"detail": error.detail, "code": code}
    return status, body | error.extras()


def http_problem(status: int, code: str, title: str, detail: str, **extra: Any) -> dict[str, Any]:
    """A problem body for what the web framework itself refuses (unknown path, wrong method, malformed body)."""
    return {"type": f"urn:label-dp:{code}", "title": title, "status": status, "detail": detail, "code": code, **extra}
