"""Documentation of routes: their refusals in OpenAPI, and the roles that may call them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Header

from label_dp.http.calls import Require
from label_dp.problems import PROBLEM_JSON, http_problem

IdempotencyKey = Annotated[
    str | None,
    Header(alias="Idempotency-Key", description="Repeat a call safely: same key and body, same answer, one effect."),
]
Responses = dict[int | str, dict[str, Any]]
_REFUSALS = {
    400: ("invalid-events", "Events rejected"),
    401: ("unauthenticated", "No valid API key"),
    403: ("budget-exceeded", "Privacy budget exceeded"),
    404: ("not-found", "Not found, or not yours"),
    408: ("request-timeout", "Upload too slow"),
    409: ("conflict", "Does not fit the state of its object"),
    412: ("precondition-failed", "Precondition failed"),
    413: ("too-large", "Upload too large"),
    415: ("unsupported-media-type", "Unsupported content type"),
    416: ("range-not-satisfiable", "Range cannot be served"),
    422: ("invalid-input", "Invalid input"),
    429: ("too-many-calls", "Too many calls with this API key; try again after Retry-After"),
    502: ("remote-problem", "The other side refused"),
    503: ("busy", "Busy, or temporarily unavailable; try again after Retry-After"),
}


def problem_responses(*statuses: int) -> Responses:
    """Describe the refusals of a route in OpenAPI, each a problem body."""
    responses: Responses = {}
    for status in statuses:
        code, text = _REFUSALS[status]
        example = http_problem(status, code, text, "What was wrong, where, and what to do.")
        responses[status] = {"description": text, "content": {PROBLEM_JSON: {"example": example}}}
    return responses


PROBLEM_RESPONSES = problem_responses(401, 404, 422, 429)


def require(*roles: str) -> Any:
    """Return a dependency: the caller, if its key has one of `roles`; otherwise the same 404 as for an unknown
    object."""
    return Depends(Require(roles))
