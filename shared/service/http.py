"""HTTP habits of both services: problem bodies, bearer keys with roles, bounded request bodies."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.exceptions import HTTPException

from shared.errors import LabelDPError, NotFound, TooLarge
from shared.problems import PROBLEM_JSON, http_problem, problem
from shared.service.apikeys import ApiKeys, Principal

log = logging.getLogger("label_dp.http")
bearer = HTTPBearer(auto_error=False, description="An API key made with the `apikey create` command.")

SMALL_BODY = 1 << 26  # more than any request that is no upload needs

Responses = dict[int | str, dict[str, Any]]
_REFUSALS = {
    401: ("unauthenticated", "No valid API key"),
    403: ("budget-exceeded", "Privacy budget exceeded"),
    404: ("not-found", "Not found, or not yours"),
    409: ("conflict", "Does not fit the state of its object"),
    413: ("too-large", "Upload too large"),
    415: ("unsupported-media-type", "Unsupported content type"),
    416: ("range-not-satisfiable", "Range cannot be served"),
    422: ("invalid-input", "Invalid input"),
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
        # KeyFirst knows the caller already; the header parameter is here for the OpenAPI document
        caller: Principal = request.state.caller
        if caller.role not in roles:
            raise NotFound("There is no such thing for this API key. Check the path and the role of the key.")
        return caller

    return Depends(check)


def install(app: FastAPI, apikeys: ApiKeys, *, max_body_bytes: int, uploads: tuple[str, ...]) -> None:
    """Give `app` the problem handlers, the key store and the body limits.

    Paths that match one of the patterns `uploads` take bodies up to `max_body_bytes`, all others SMALL_BODY at most.
    """
    app.state.apikeys = apikeys
    app.add_exception_handler(LabelDPError, _on_typed)
    app.add_exception_handler(RequestValidationError, _on_validation)
    app.add_exception_handler(HTTPException, _on_http)
    large = [re.compile(pattern) for pattern in uploads]

    def limit(path: str) -> int:
        return max_body_bytes if any(p.fullmatch(path) for p in large) else min(max_body_bytes, SMALL_BODY)

    app.add_middleware(BodyLimit, limit=limit)
    app.add_middleware(KeyFirst, apikeys=apikeys)
    app.add_middleware(LastResort)


class _Problem(JSONResponse):
    media_type = PROBLEM_JSON

    def render(self, content: Any) -> bytes:
        # a caller's half surrogate pair, quoted back in an id, has no UTF-8 form
        return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _respond(status: int, body: dict[str, Any]) -> JSONResponse:
    headers = {"WWW-Authenticate": "Bearer"} if status == HTTPStatus.UNAUTHORIZED else None
    return _Problem(body, status_code=status, headers=headers)


async def _on_typed(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, LabelDPError)
    return _respond(*problem(error))


async def _on_validation(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    # pydantic's own entries quote the input, which may be a label: only place and rule are passed on
    places = [{"where": ".".join(str(p) for p in e["loc"]), "rule": _rule(e)} for e in error.errors()[:20]]
    detail = f"{places[0]['where']}: {places[0]['rule']}" if places else "The request is malformed."
    return _respond(422, http_problem(422, "invalid-request", "Invalid request", detail, places=places))


def _rule(entry: dict[str, Any]) -> str:
    # messages of our own validators and of type checks name the rule; everything else only its type
    return str(entry["msg"]) if entry["type"] not in ("json_invalid",) else "the body is not valid JSON"


async def _on_http(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    if error.status_code == HTTPStatus.BAD_REQUEST:  # the framework's word for a body that it cannot decode
        return _respond(422, http_problem(422, "invalid-request", "Invalid request", "The body cannot be decoded."))
    status = HTTPStatus(error.status_code)
    code = status.phrase.lower().replace(" ", "-")
    return _respond(
        status, http_problem(status, code, status.phrase, f"{status.phrase}. See /docs for the calls of this service.")
    )


Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


App = Callable[[Scope, Receive, Send], Awaitable[None]]


class LastResort:
    """A bug ends here, with its kind in the log and nothing else: texts and tracebacks may hold labels."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def noted(message: MutableMapping[str, Any]) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self.app(scope, receive, noted)
        except Exception as error:
            log.error("internal error of type %s", type(error).__name__)
            if scope["type"] == "http" and not started:
                detail = "The service failed; its log names the kind of failure."
                await _respond(500, http_problem(500, "internal", "Internal error", detail))(scope, receive, send)


class KeyFirst:
    """Below /v1 a caller without a valid key is answered before a byte of its body is read or decoded."""

    def __init__(self, app: App, apikeys: ApiKeys) -> None:
        self.app, self.apikeys = app, apikeys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith("/v1/"):
            given = dict(scope["headers"]).get(b"authorization", b"").decode("latin-1")
            scheme, _, secret = given.partition(" ")
            try:
                caller = await run_in_threadpool(
                    self.apikeys.authenticate, secret.strip() if scheme.lower() == "bearer" else None
                )
            except LabelDPError as error:
                await _respond(*problem(error))(scope, receive, send)
                return
            scope.setdefault("state", {})["caller"] = caller
        await self.app(scope, receive, send)


class BodyLimit:
    """Refuses bodies over the limit: at once by Content-Length, otherwise as soon as the count is passed."""

    def __init__(self, app: App, limit: Callable[[str], int]) -> None:
        self.app, self.limit = app, limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        most = self.limit(scope["path"])
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if not declared.isdigit() or int(declared) > most:
            await _respond(*problem(self._error(most)))(scope, receive, send)
            return
        seen, answered = 0, False

        async def counted() -> MutableMapping[str, Any]:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > most:
                raise self._error(most)
            return message

        async def ours(message: MutableMapping[str, Any]) -> None:
            nonlocal answered
            if answered or seen <= most:  # else the framework answers our refusal with one of its own
                answered = True
                await send(message)

        try:
            await self.app(scope, counted, ours)
        except TooLarge:
            if answered:
                raise
        if seen > most and not answered:
            await _respond(*problem(self._error(most)))(scope, receive, send)

    @staticmethod
    def _error(most: int) -> TooLarge:
        return TooLarge(f"The request body is larger than {most} bytes; send it in smaller parts.")
