"""Numbers from outside are read in one place: no option, query, setting or reader has a way of its own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from pydantic import BaseModel

import features_party.api
import features_party.cli
import labels_party.cli
from features_party.settings import Settings as FeaturesSettings
from label_dp.cli import numbers as cli
from label_dp.errors import InvalidSettings
from label_dp.schemas.base import Ask, QueryAsk
from label_dp.schemas.numbers import PLAIN
from labels_party.settings import Settings as LabelsSettings
from tests.support.number_doors import (
    body_doors,
    models_of,
    options_of,
    query_doors,
    query_fields,
    routes,
    takes_number,
)

ROOT = Path(__file__).parents[2]
# Decimal and Fraction of a text; float and int of one are looked for where a text is most likely
OWN_WAY = re.compile(r"InvalidOperation|Decimal\((?:str|repr)\(|Decimal\(value\)|Fraction\(str\(")
ALLOWED = {
    "shared/label_dp/companions/maps/places.py": "writes a float",
    "features_party/models/card.py": "of an Epsilon",
    "labels_party/companions/kinds/prediction/plan.py": "of a text that decimal_of made",
}


@pytest.mark.parametrize("app", [labels_party.cli.app, features_party.cli.app], ids=["labels", "features"])
def test_every_option_that_takes_a_number_is_read_by_the_grammar(app: Any) -> None:
    found = list(options_of(app))
    assert len(found) >= 4
    ours = {cli.whole("--x").__qualname__, cli.real("--x").__qualname__}
    for command, name, told in found:
        assert told.parser is not None, f"{command} {name}: give it parser=whole(…) or real(…)"
        assert told.parser.__qualname__ in ours, (command, name)


def _apps(tmp_path: Path) -> list[FastAPI]:
    from features_party.api.app import create_app
    from labels_party.api.app import create_app as create_labels
    from tests.support.labels import LabelsParty
    from tests.support.messages import features_party as services

    with LabelsParty(tmp_path / "labels", worker=False) as party:
        return [create_labels(party.services), create_app(services(tmp_path / "features"))]


def test_queries_and_bodies(tmp_path: Path) -> None:
    for app in _apps(tmp_path):
        queries = 0
        for route in routes(app):
            for dependant in [route.dependant, *route.dependant.dependencies]:
                for name, field in query_fields(dependant):
                    if takes_number(field.annotation):
                        queries += 1
                        assert PLAIN in field.metadata, (route.path, name)
        assert queries >= 2
        assert query_doors(app)
        assert body_doors(app)


def test_bodies_are_strict(tmp_path: Path) -> None:
    queries, bodies = set[type[BaseModel]](), set[type[BaseModel]]()
    for app in _apps(tmp_path):
        for route in routes(app):
            queries |= {m for p in route.dependant.query_params for m in models_of(p.field_info.annotation)}
            bodies |= set(models_of(route.body_field.field_info.annotation) if route.body_field is not None else [])
    waiting: list[type[BaseModel]] = [Ask]
    seen = 0
    while waiting:
        model = waiting.pop()
        waiting += model.__subclasses__()
        of_query = model in queries or model.__module__.startswith(("label_dp.", "labels_party.client."))
        if issubclass(model, QueryAsk) and of_query and model not in bodies:
            continue  # asked for in a query, where everything is text
        seen += 1
        assert model.model_config.get("strict") is True, model
    assert seen > 5
    assert len(queries) > 1
    assert len(bodies) > 15


@pytest.mark.parametrize("kind", [LabelsSettings, FeaturesSettings])
def test_settings(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    prefix = kind.model_config["env_prefix"]
    numbers = [name for name, field in kind.model_fields.items() if takes_number(field.annotation)]
    assert len(numbers) > 6
    for name in numbers:
        for bad in ("1_000_0", " 20000", "20000 ", "+20000", "\u0661\u0660\u0660\u0660\u0660", "2e999", ""):
            monkeypatch.setenv(prefix + name.upper(), bad)
            with pytest.raises(InvalidSettings, match=name.upper()):
                kind.load()
        monkeypatch.delenv(prefix + name.upper())
    kind.load()


def test_no_reader_has_a_way_of_its_own() -> None:
    for room in ("labels_party", "features_party", "shared"):
        for path in (ROOT / room).rglob("*.py"):
            name = path.relative_to(ROOT).as_posix()
            if name not in (*ALLOWED, "shared/label_dp/numbers.py") and (
                found := OWN_WAY.search(path.read_text("utf-8"))
            ):
                pytest.fail(f"{name} reads numbers by '{found[0]}'; use label_dp.numbers")
