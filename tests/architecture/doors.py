"""The doors of a labels party that a toy change must be reached through: both clients and the command line."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from labels_party.client import AsyncLabelsPartyClient, LabelsPartyClient, batches, releases
from tests.support.commands import command
from tests.support.labels import LabelsParty

URL = "http://testserver"
Json = dict[str, Any]


def _declared_now() -> list[type]:
    """The calls whose keywords are the members of a schema, from modules that are run now; no other test sees them."""
    return [getattr(anew(module), name) for module, name in ((batches, "BatchCalls"), (releases, "ReleaseCalls"))]


def anew(module: ModuleType) -> ModuleType:
    """The module as it is imported now; no other test sees it."""
    spec = importlib.util.find_spec(module.__name__)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def blocking(party: LabelsParty, talk: Callable[[Any], Json]) -> Json:
    """What the owner's blocking client answers; its class is made now, and has every call that is declared now."""
    party.client()
    kind = type("Client", (*_declared_now(), LabelsPartyClient), {})
    return talk(kind(URL, party.services.apikeys.create("owner")[1], http=party._clients[0]))


def awaited(party: LabelsParty, talk: Callable[[Any], Awaitable[Json]]) -> Json:
    """The same to await."""
    party.client()
    kind = type("AsyncClient", (*_declared_now(), AsyncLabelsPartyClient), {})

    async def talked() -> Json:
        transport = httpx.ASGITransport(party._clients[0].app)
        http = httpx.AsyncClient(transport=transport, base_url=URL)
        async with kind(URL, party.services.apikeys.create("owner")[1], http=http) as client:
            return await talk(client)

    return asyncio.run(talked())


def shell(party: LabelsParty, folder: Path, *words: object, code: int = 0) -> str:
    """What `labels-party` prints in the party's home; on stderr where it is refused."""
    environment = {"LABELS_PARTY_HOME": str(party.home)}
    done = command("labels-party", *words, folder=folder, environment=environment)
    assert done.returncode == code, done.stderr
    return done.stderr if code else done.stdout


@contextmanager
def grown(model: type[BaseModel], name: str, annotation: Any, field: Any) -> Iterator[None]:
    """`model` with one member more, as if its file had it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(model.__annotations__, name, annotation)
        patch.setitem(model.__pydantic_fields__, name, FieldInfo.from_annotated_attribute(annotation, field))
        model.model_rebuild(force=True)
        yield
    model.model_rebuild(force=True)
