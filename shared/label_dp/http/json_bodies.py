"""JSON bodies: decoded and checked once, in a thread, never on the event loop."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, TypeAdapter
from starlette.requests import ClientDisconnect

from label_dp.errors import TooLarge, UnsupportedMediaType
from label_dp.http.bodies import JSON_TYPE
from label_dp.http.calls import SMALL_BODY, Answer
from label_dp.http.threads import Handler, Threads, taking_turns
from label_dp.schemas.base import Ask
from label_dp.schemas.validation import read_value

Model = TypeVar("Model", bound=BaseModel)
Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])

NOT_JSON = "This call reads JSON: send the header 'Content-Type: application/json'."
DECODERS = Threads(4)  # other calls keep their threads


class _Decoded(Request):
    """Request with a decoded JSON body: the framework reads `value` instead of decoding again."""

    value: Any = None

    async def json(self) -> Any:
        return self.value


def quickly(answer: Answer) -> Callable[[Endpoint], Endpoint]:
    """Mark a route of very frequent calls: `answer` answers requests without a query, skipping the framework's layers
    and reading of parameters, which take longer than a small call."""

    def marked(endpoint: Endpoint) -> Endpoint:
        endpoint.quick_answer = answer  # type: ignore[attr-defined]  # read by the call that is made of it
        return endpoint

    return marked


class JsonRoute(APIRoute):
    """Route that reads its JSON body strictly; its summary is the first sentence of its description. Raises
    InvalidRequest, UnsupportedMediaType."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        _build(Ask)
        options["summary"] = options.get("summary") or _first_sentence(
            options.get("description") or inspect.getdoc(endpoint) or ""
        )
        super().__init__(path, endpoint, **options)

    def get_route_handler(self) -> Handler:
        handle, field = taking_turns(self, super().get_route_handler()), self.body_field
        if field is None:
            return handle
        annotation: Any = field.field_info.annotation
        adapter: TypeAdapter[Any] = TypeAdapter(annotation | None)  # the framework reports a missing body

        async def decoded(request: Request) -> Response:
            decoded_request = _Decoded(request.scope, request.receive)
            try:
                body = await decoded_request.body()
            except ClientDisconnect:
                return Response(status_code=400)  # nobody reads it
            if body:
                kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
                if not JSON_TYPE.fullmatch(kind):
                    raise UnsupportedMediaType(NOT_JSON)
                decoded_request.value = await DECODERS.run(partial(read_value, body, adapter, annotation))
            return await handle(decoded_request)

        return decoded


class JsonRouter(APIRouter):
    """Router of `JsonRoute`s."""

    def __init__(self, **options: Any) -> None:
        super().__init__(route_class=JsonRoute, **options)


def _first_sentence(text: str) -> str | None:
    match = re.match(r"(.+?\.)(?: |$)", " ".join(text.split()))
    return match[1] if match else None


def _build(schema: type[Ask]) -> None:
    """Build all schemas: commands leave them unbuilt until one is used, a service uses all."""
    schema.model_config["defer_build"] = False  # else the framework's adapters put it off once more, and warn
    schema.model_rebuild()
    for inner in schema.__subclasses__():
        _build(inner)


async def read_body(request: Request, model: type[Model]) -> Model:
    """Read the JSON body of a route that also accepts other types. Raises InvalidRequest, TooLarge."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > SMALL_BODY:
            raise TooLarge(f"A JSON body of this call has at most {SMALL_BODY} bytes.")
    value: Model = await DECODERS.run(partial(read_value, bytes(body), TypeAdapter(model), model))
    return value
