"""HEAD wherever GET is, OPTIONS with `Allow`, and query parameters that are known."""

from __future__ import annotations

from typing import Any, get_origin

from fastapi import FastAPI, Request
from pydantic import BaseModel
from starlette.datastructures import QueryParams
from starlette.responses import Response

from label_dp.errors import InvalidRequest
from label_dp.http.asgi import App, Message, Receive, Scope, Send, allowed_methods


class _HeadAnswered(Exception):
    """Ends a call once its headers are out; private to this module."""


class Methods:
    """Answers HEAD as GET without the body, and OPTIONS with the methods of a path."""

    def __init__(self, app: App, api: FastAPI) -> None:
        self.app, self.api = app, api

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "OPTIONS":
            methods = allowed_methods(self.api, scope)
            if methods:
                await Response(status_code=204, headers={"Allow": ", ".join(methods)})(scope, receive, send)
                return
        if scope["type"] == "http" and scope["method"] == "HEAD":
            await self._head(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _head(self, scope: Scope, receive: Receive, send: Send) -> None:
        done = False

        async def headers_only(message: Message) -> None:
            nonlocal done
            if message["type"] == "http.response.start":
                await send(message)
            elif message["type"] == "http.response.body":
                done = True
                await send({"type": "http.response.body", "body": b""})
                raise _HeadAnswered  # a large file need not be read, an event stream would not end

        inner = {**scope, "method": "GET", "extensions": {}}  # of a body that is not sent, no other way to send it
        try:
            await self.app(inner, receive, headers_only)
        except Exception:  # also as part of a group
            if not done:
                raise
        finally:
            if "route" in inner:
                scope["route"] = inner["route"]  # the log and the metrics name it


def _fields(dependant: Any) -> list[tuple[str, Any]]:
    """(name, annotation) of each parameter of a query; those of a model of it one by one."""
    found = []
    for field in dependant.query_params:
        annotation = field.field_info.annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            found += [(member.alias or name, member.annotation) for name, member in annotation.model_fields.items()]
        else:
            found.append((field.alias, annotation))
    return found + [field for inner in dependant.dependencies for field in _fields(inner)]


async def known_request(request: Request) -> None:
    """A dependency of every route below /v1: refuses query parameters that the route does not know or that came twice.

    Raises InvalidRequest."""
    route = request.scope.get("route")
    dependant = getattr(route, "dependant", None)
    if dependant is None or not request.url.path.startswith("/v1/"):
        return
    _check_query(request.query_params, _fields(dependant))


def _check_query(given: QueryParams, fields: list[tuple[str, Any]]) -> None:
    many = {name: get_origin(annotation) in (list, tuple, set) for name, annotation in fields}
    for name in dict.fromkeys(given.keys()):
        if name not in many:
            shown = name if len(name) <= 60 else name[:60] + "…"
            known = f"the known ones are {', '.join(many)}" if many else "this call has none"
            raise InvalidRequest(
                f"The query parameter '{shown}' is not known; {known}.", [{"where": "query", "rule": "is not known"}]
            )
        if not many[name] and len(given.getlist(name)) > 1:
            raise InvalidRequest(
                f"The query parameter '{name}' was given more than once; give it once.",
                [{"where": f"query.{name}", "rule": "was given more than once"}],
            )
