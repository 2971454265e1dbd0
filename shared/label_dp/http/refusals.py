"""Refusals over HTTP: problem bodies with the request's id; the framework's own errors become sentences."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from label_dp.errors import IdempotencyInFlight, LabelDPError, TooManyCalls
from label_dp.http.asgi import allowed_methods
from label_dp.logs import request_id
from label_dp.problems import PROBLEM_JSON, http_problem, problem
from label_dp.schemas.validation import explain

RETRY_SECONDS = 2


class ProblemResponse(JSONResponse):
    """Response with a problem body."""

    media_type = PROBLEM_JSON

    def render(self, content: Any) -> bytes:
        identifier = request_id.get()
        if identifier:
            content = content | {"instance": f"urn:label-dp:request:{identifier}", "request_id": identifier}
        # a caller's half surrogate pair, quoted back in an id, has no UTF-8 form
        return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def respond(status: int, body: dict[str, Any], headers: dict[str, str] | None = None) -> ProblemResponse:
    """Make a problem response with the headers of its status."""
    all_headers = dict(headers or {})
    if status == HTTPStatus.UNAUTHORIZED:
        all_headers["WWW-Authenticate"] = "Bearer"
    if status == HTTPStatus.SERVICE_UNAVAILABLE or body.get("code") == IdempotencyInFlight.code:
        all_headers["Retry-After"] = str(RETRY_SECONDS)
    if status == HTTPStatus.REQUEST_TIMEOUT:
        all_headers["Connection"] = "close"  # the rest of the body may still arrive
    return ProblemResponse(body, status_code=status, headers=all_headers)


def refusal(error: LabelDPError) -> ProblemResponse:
    """Make the response of an error."""
    wait = {"Retry-After": str(error.seconds)} if isinstance(error, TooManyCalls) else None
    return respond(*problem(error), wait)


def install_handlers(app: FastAPI) -> None:
    """Install handlers that answer errors with problem bodies."""
    app.add_exception_handler(LabelDPError, _on_typed)
    app.add_exception_handler(RequestValidationError, _on_validation)
    app.add_exception_handler(HTTPException, _on_http)


async def _on_typed(_: Request, error: Exception) -> ProblemResponse:
    assert isinstance(error, LabelDPError)
    return refusal(error)


async def _on_validation(request: Request, error: Exception) -> ProblemResponse:
    assert isinstance(error, RequestValidationError)
    field = getattr(request.scope.get("route"), "body_field", None)
    model = getattr(getattr(field, "field_info", None), "annotation", None)
    return refusal(explain(list(error.errors()), error.body, model))


async def _on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    if status == HTTPStatus.BAD_REQUEST:  # the framework's word for a body that it cannot decode
        return respond(422, http_problem(422, "invalid-request", "Invalid request", "The body cannot be decoded."))
    detail, headers = f"{status.phrase}.", dict(error.headers or {})
    if status == HTTPStatus.NOT_FOUND:
        detail = "There is no such path. See /docs for the calls of this service."
        body = http_problem(status, "not-found", status.phrase, "There is no such page.")
        if request.method == "GET" and (page := await refused_page(request, status, body)) is not None:
            return page
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        methods = allowed_methods(request.app, request.scope)
        headers["Allow"] = ", ".join(methods)
        detail = f"This path answers {', '.join(methods)} only. See /docs for the calls of this service."
    code = status.phrase.lower().replace(" ", "-")
    return respond(status, http_problem(status, code, status.phrase, detail), headers)


async def refused_page(request: Request, status: int, body: dict[str, Any]) -> Response | None:
    """Return a problem as a page; None unless the caller wants one, and the service has pages."""
    app = request.scope.get("app")  # none before the application has seen the request
    site = None if app is None else getattr(app.state, "site", None)
    if site is None or request.url.path.startswith("/v1/") or "text/html" not in request.headers.get("accept", ""):
        return None
    page: Response = await run_in_threadpool(site.render, request, "refused", status, problem=body)
    return page
