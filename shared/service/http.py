"""HTTP habits of both services, in the order in which a request meets them.

Log line and id; a bug's last resort; bounded headers and the caller's key; bounded bodies; strict JSON; HEAD and
OPTIONS; then the routes, whose refusals are problem bodies.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from shared.errors import NotFound
from shared.problems import PROBLEM_JSON, http_problem
from shared.service.apikeys import ApiKeys, Principal
from shared.service.asgi import Receive, Scope, Send
from shared.service.bodies import Bodies, Bounds, StrictJson, matches
from shared.service.front import Front, LastResort, RequestLog
from shared.service.methods import Methods, known_request
from shared.service.refusals import install_handlers
from shared.service.validation import read_model

__all__ = [
    "PROBLEM_RESPONSES", "Bounds", "Receive", "Scope", "Send", "install", "problem_responses", "read_model", "require",
]  # fmt: skip

bearer = HTTPBearer(auto_error=False, description="An API key made with the `apikey create` command.")

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

    def check(request: Request, _: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]) -> Principal:
        # Front knows the caller already; the header parameter is here for the OpenAPI document
        caller: Principal = request.state.caller
        if caller.role not in roles:
            raise NotFound("There is no such thing for this API key. Check the path and the role of the key.")
        return caller

    return Depends(check)


def install(
    app: FastAPI, apikeys: ApiKeys, *, bounds: Bounds, uploads: tuple[str, ...], silent: frozenset[str] = frozenset()
) -> None:
    """Give `app` these habits; call it before the routers are included.

    Paths that match one of the patterns `uploads` take bodies up to `bounds.max_body_bytes`, all others SMALL_BODY at
    most. Routes in `silent` have no line in the log (invariant 1).
    """
    app.state.apikeys = apikeys
    install_handlers(app)
    app.router.redirect_slashes = False
    app.router.dependencies.append(Depends(known_request))
    is_upload = matches(uploads)
    # the last one added is met first
    app.add_middleware(Methods, api=app)
    app.add_middleware(StrictJson, skip=is_upload)
    app.add_middleware(Bodies, bounds=bounds, is_upload=is_upload)
    app.add_middleware(Front, apikeys=apikeys)
    app.add_middleware(LastResort)
    app.add_middleware(RequestLog, silent=silent)
