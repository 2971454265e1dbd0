"""HTTP habits of both services, in the order in which a request meets them.

Log line and id; a bug's last resort; bounded headers, the call that is meant, the caller's key and role; bounded
bodies; HEAD and OPTIONS; then the routes, which read JSON strictly, and whose refusals are problem bodies.
"""

from __future__ import annotations

from typing import Any

from fastapi import Depends, FastAPI

from shared.problems import PROBLEM_JSON, http_problem
from shared.service.apikeys import ApiKeys
from shared.service.asgi import Receive, Scope, Send
from shared.service.bodies import Bodies, Bounds
from shared.service.calls import LARGE, UPLOAD, Calls, Require
from shared.service.front import Front, LastResort, RequestLog
from shared.service.json_bodies import JsonRouter, read_body
from shared.service.methods import Methods, known_request
from shared.service.refusals import install_handlers

__all__ = [
    "LARGE", "PROBLEM_RESPONSES", "UPLOAD", "Bounds", "JsonRouter", "Receive", "Scope", "Send", "install",
    "problem_responses", "read_body", "require",
]  # fmt: skip

Responses = dict[int | str, dict[str, Any]]
_REFUSALS = {
    401: ("unauthenticated", "No valid API key"),
    403: ("budget-exceeded", "Privacy budget exceeded"),
    404: ("not-found", "Not found, or not yours"),
    408: ("request-timeout", "Upload too slow"),
    409: ("conflict", "Does not fit the state of its object"),
    413: ("too-large", "Upload too large"),
    415: ("unsupported-media-type", "Unsupported content type"),
    416: ("range-not-satisfiable", "Range cannot be served"),
    422: ("invalid-input", "Invalid input"),
    502: ("remote-problem", "The other side refused"),
    503: ("busy", "Busy, or temporarily unavailable; try again after Retry-After"),
}


def problem_responses(*statuses: int) -> Responses:
    """OpenAPI of the refusals of a route, each a problem body."""
    found: Responses = {}
    for status in statuses:
        code, text = _REFUSALS[status]
        example = http_problem(status, code, text, "What was wrong, where, and what to do.")
        found[status] = {"description": text, "content": {PROBLEM_JSON: {"example": example}}}
    return found


PROBLEM_RESPONSES = problem_responses(401, 404, 422)


def require(*roles: str) -> Any:
    """A dependency: the caller, if its key has one of `roles`; otherwise the same 404 as for an unknown object."""
    return Depends(Require(roles))


def install(app: FastAPI, apikeys: ApiKeys, *, bounds: Bounds, silent: frozenset[str] = frozenset()) -> None:
    """Give `app` these habits; call it before the routers are included.

    Routes with the dependency UPLOAD take bodies up to `bounds.max_body_bytes`, those with LARGE up to LARGE_BODY, all
    others SMALL_BODY at most. Routes in `silent` have no line in the log (invariant 1).
    """
    app.state.apikeys = apikeys
    install_handlers(app)
    app.router.redirect_slashes = False
    app.router.dependencies.append(Depends(known_request))
    # the last one added is met first
    app.add_middleware(Methods, api=app)
    app.add_middleware(Bodies, bounds=bounds)
    app.add_middleware(Front, apikeys=apikeys, calls=Calls(app))
    app.add_middleware(LastResort)
    app.add_middleware(RequestLog, silent=silent)
