"""No door takes a number that is spelled as none: every body, query, option and setting that takes one is found, tried
with spellings that Python's readers or people would take, refused in a sentence, and nothing is charged or written."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pydantic import BaseModel

from label_dp.schemas.base import Ask, QueryAsk
from tests.support.cases import cases
from tests.support.labels import LabelsParty
from tests.support.labels_api import answers
from tests.support.labels_cli import Run, arguments, refused
from tests.support.number_doors import BAD_TEXTS, BAD_VALUES, body_doors, query_doors, routes
from tests.support.own_features import FEATURES, MODEL, NUMBERS, RECTANGLE, sealed, tables
from tests.support.pages import signed_in

SHOP: dict[str, Any] = {"name": "new", "label": "revenue", "domain": "0:10", "lifetime_epsilon": "3"}
EVENTS = {"data_set_id": "orders", "types": {"purchase": "+"}, "take": "count"}
BOUGHT = {"epsilon": "1", "mechanism": "rr-on-bins", "clip_quantile": "0.9", "clip_epsilon": "0.1"}
LOSS = {"labels": list(range(11)), "outputs": [0, 10], "matrix": [[0, 1]] * 11}
ESTIMATED = {"epsilon": "1", "mechanism": "rr-on-bins", "prior": "estimate", "prior_epsilon": "0.1"}
PREDICTOR = {"batch": "BATCH", "method": "average", "epsilon": "0.1", "epsilon_cap": "1", "features": FEATURES}
LATER = "2099-01-31T04:00:00Z"

# what a door is tried with besides that member: a request that would be taken
BODIES: dict[str, dict[str, dict[str, Any]]] = {
    "POST /v1/populations": {
        "": SHOP | {"unit_column": "user", "missing_label": 0, "max_examples_per_unit": 2},
        "events": SHOP | {"missing_label": 0, "events": EVENTS},
    },
    "POST /v1/people": {"": {"name": "crowd", "lifetime_epsilon": "5"}},
    "POST /v1/batches/{batch}/releases": {
        "": BOUGHT,
        "clip": {"epsilon": "1", "mechanism": "one-bit", "clip": ["0", "9"]},
        "prior_epsilon": ESTIMATED,
        "loss": ESTIMATED | {"loss": LOSS},
    },
    "POST /v1/populations/{population}/batches": {
        "": {"presence": "public", "seal_at": LATER, "release": BOUGHT},
        "release.clip": {"presence": "public", "seal_at": LATER, "release": {"epsilon": "1", "mechanism": "one-bit"}},
        "release.prior_epsilon": {"presence": "public", "seal_at": LATER, "release": ESTIMATED},
        "release.loss": {"presence": "public", "seal_at": LATER, "release": ESTIMATED | {"loss": LOSS}},
    },
    "POST /v1/batches/{batch}/medians": {"": {"epsilon": "1", "delta": "0.000001", "method": "slices"}},
    "POST /v1/batches/{batch}/rectangles": {"": RECTANGLE},
    "POST /v1/batches/{batch}/linear-models": {"": MODEL},
    "POST /v1/batches/{batch}/sums": {"": {"epsilon": "1", "by": ["kind"]}},
    "POST /v1/predictors": {
        "": PREDICTOR,
        "threshold": PREDICTOR | {"method": "soft-majority", "threshold": 5},
        "regularisation": PREDICTOR | {"method": "stable-ridge"},
        "centre": PREDICTOR | {"method": "stable-ridge"},
        "bound": PREDICTOR | {"method": "walk", "threshold": 5, "features": NUMBERS[:1]},
    },
    "PUT /v1/batches/{batch}/calibration-allowance": {"": {"epsilon": "1"}},
    "PUT /v1/batches/{batch}/sums-allowance": {"": {"epsilon": "1"}},
}
for _kind in ("rectangles", "linear-models", "sums"):
    BODIES[f"POST /v1/batches/{{batch}}/{_kind}/plan"] = BODIES[f"POST /v1/batches/{{batch}}/{_kind}"]
BODIES["PATCH /v1/batches/{batch}"] = {
    key: {name: value for name, value in body.items() if name != "presence"}
    for key, body in BODIES["POST /v1/populations/{population}/batches"].items()
}
TEXTS = {"features.values", "example_ids", "query"}  # ids and values of categories: any text is one
SIGNED = ("domain", "threshold", "centre", "range", "missing_label", "clip", "loss")  # -0 is 0 there


@pytest.fixture(scope="module")
def party(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabelsParty]:
    with LabelsParty(tmp_path_factory.mktemp("doors") / "home", worker=False) as found:
        yield found


@pytest.fixture(scope="module")
def places(party: LabelsParty) -> dict[str, str]:
    batch = sealed(party, *tables(400))
    client = party.client()
    opened = client.post("/v1/populations/shop/batches", json={"presence": "public"}).json()["id"]
    return {"batch": batch, "population": "shop", "OPEN": opened}


def _bodies(door: str, member: str) -> dict[str, Any]:
    chosen = max((key for key in BODIES[door] if member.startswith(key)), key=len)
    return copy.deepcopy(BODIES[door][chosen])


def _with(body: dict[str, Any], member: str, bad: Any) -> list[dict[str, Any]]:
    """The body with `bad` where the member has a number."""
    *path, last = member.split(".")
    found, inside = [], body
    for part in path:
        inside = inside.setdefault(part, {})
        inside = inside[0] if isinstance(inside, list) else inside
    if last == "domain":
        values: list[Any] = [[0, bad], *((f"0:{bad}", f"{bad}:10", f"0:10:{bad}") if isinstance(bad, str) else ())]
    elif last in ("clip", "range") and not isinstance(inside.get(last), int) and "steps" not in member:
        values = [[bad, "9"], ["0", bad]]
    elif last == "matrix":
        values = [[[0, bad]] * 11]
    elif last in ("alert_percent", "labels", "outputs"):
        values = [[bad]]
    elif last == "clip_quantile":
        values = [bad, [bad], ["0.1", bad], *([f"0.1:{bad}"] if isinstance(bad, str) else [])]
    else:
        values = [bad]
    for value in values:
        inside[last] = value
        found.append(copy.deepcopy(body))
    return found


def _url(door: str, places: dict[str, str]) -> tuple[str, str]:
    method, path = door.split(" ")
    batch = places["OPEN"] if method == "PATCH" else places["batch"]
    return method, path.format(batch=batch, population=places["population"])


def _state(party: LabelsParty) -> tuple[Any, Any, Any]:
    owner = party.client()
    events = party.services.database.read("e", lambda c: len(list(party.services.audit.scan(c))))
    return events, owner.get("/v1/populations/shop/budget").json(), owner.get("/v1/predictors").json()


def _text(body: Any, batch: str) -> str:
    return json.dumps(body).replace('"BATCH"', json.dumps(batch))


def test_every_body_that_takes_a_number_is_tried(party: LabelsParty) -> None:
    owner = party.client()
    found = {door for door in body_doors(owner.app) if door[1] not in TEXTS}  # type: ignore[arg-type]  # the application
    assert {door for door, _ in found} == set(BODIES), "a door is new: give it a request that would be taken"
    assert len(found) > 60


def test_models_of_requests_are_strict(party: LabelsParty) -> None:
    """Else a text counts as a number, and `"yes"` as true."""
    waiting: list[type[BaseModel]] = [Ask]
    while waiting:
        model = waiting.pop()
        if issubclass(model, QueryAsk):  # in a query everything is text
            continue
        waiting += model.__subclasses__()
        assert model.model_config.get("strict") is True, model
    for route in routes(party.client().app):  # type: ignore[arg-type]  # the application
        if route.body_field is not None and isinstance(route.body_field.field_info.annotation, type):
            model = route.body_field.field_info.annotation
            if issubclass(model, BaseModel):
                assert issubclass(model, Ask), model
                assert not issubclass(model, QueryAsk), model


@pytest.mark.parametrize("door", cases(BODIES, lambda door: door.endswith(("populations", "/releases"))))
def test_bodies(door: str, party: LabelsParty, places: dict[str, str]) -> None:
    owner, before = party.client(), _state(party)
    method, url = _url(door, places)
    members = sorted(m for d, m in body_doors(owner.app) if d == door and m not in TEXTS)  # type: ignore[arg-type]  # the application
    assert members
    tried: list[tuple[str, Any, str]] = []
    for member in members:
        for number, bad in enumerate((*BAD_TEXTS, *BAD_VALUES)):
            if bad == "-0" and member.split(".")[-1] in SIGNED:
                continue
            forms = _with(_bodies(door, member), member, bad)
            tried += [(member, bad, _text(body, places["batch"])) for body in (forms if number < 12 else forms[:1])]
    found = answers(owner, [(method, url, text) for *_, text in tried])
    for (member, bad, _), answer in zip(tried, found, strict=True):
        assert answer.status_code == 422, (member, bad if len(str(bad)) < 99 else "long", answer.text[:300])
        problem = answer.json()
        assert problem["code"].startswith("invalid-"), problem
        assert problem["detail"].endswith("."), problem
    assert _state(party) == before


@pytest.mark.parametrize("door", BODIES)
def test_the_same_bodies_as_they_were_are_taken(door: str, party: LabelsParty, places: dict[str, str]) -> None:
    """The control: what was refused was refused for its number."""
    method, url = _url(door, places)
    for number, body in enumerate(BODIES[door].values()):
        whole = body | ({"name": f"taken {number}"} if door == "POST /v1/populations" else {})
        more = {} if "/plan" in url or "release" not in url else {"additional_release": True}
        (answer,) = answers(party.client(), [(method, url, _text(whole | more, places["batch"]))])
        assert answer.status_code in (200, 201, 202, 409), answer.text
        assert answer.status_code != 409 or answer.json()["code"] in ("already-released", "budget-exceeded"), (
            answer.text
        )


PLAN = "/v1/populations/shop/plan"


@pytest.mark.parametrize("bad", BAD_TEXTS, ids=range(len(BAD_TEXTS)))
def test_queries(bad: str, party: LabelsParty, places: dict[str, str]) -> None:
    owner, looker = party.client(), signed_in(party.client())
    before = _state(party)
    wanted = {"epsilon": "1", "n": "100"}
    tried = [(PLAN, wanted | {name: bad}) for name in ("epsilon", "n")]
    tried += [(PLAN, wanted | {"clip_quantile": "0.9", "clip_epsilon": "0.1"} | {"clip_epsilon": bad})]
    tried += [(PLAN, wanted | {"clip_quantile": q, "clip_epsilon": "0.1"}) for q in (bad, f"0.1:{bad}")]
    for method_path, name in query_doors(owner.app):  # type: ignore[arg-type]  # the application
        method, path = method_path.split(" ")
        if method == "GET" and "{" not in path:
            tried.append((path, {name: bad}))
    assert len(tried) >= 9
    for path, query in tried:
        if path.startswith("/v1/"):
            answer = owner.get(path, params=query)
            assert answer.json()["detail"].endswith("."), answer.text
        else:
            answer = looker.client.get(path, params=query)  # a page
        assert answer.status_code == 422, (path, query, answer.text)
    if bad != "-0":
        for query in (
            {"epsilon": bad},
            {"epsilon": "1", "scores": f"0:{bad}:10"},
            {"epsilon": "1", "scores": f"0:1:{bad}"},
        ):
            rows = {"example_id": ["c-00001"], "score": [0.5]}
            answer = owner.post(f"/v1/batches/{places['batch']}/calibrations", params=query, json=rows)
            assert answer.status_code == 422, (query, answer.text)
    assert _state(party) == before


def test_plain_queries_are_taken(party: LabelsParty, places: dict[str, str]) -> None:
    for text in ("1", "0.5", "1e-1", "5E-1", "1.30"):
        answer = party.client().get(PLAN, params={"epsilon": text, "n": "100"})
        assert answer.status_code == 200, answer.text


def test_a_json_number_counts_as_it_is_written(party: LabelsParty, places: dict[str, str]) -> None:
    """0.1 is a tenth, not the float beside it, which has more places than ε has."""
    url = f"/v1/batches/{places['batch']}/rectangles/plan"
    for given, charged in ((0.1, "0.1"), ("0.10", "0.1"), (1, "1"), (1e-1, "0.1"), (2.5, "2.5"), (0.3, "0.3")):
        answer = party.client().post(url, json=RECTANGLE | {"epsilon": given, "delta": 1e-6})
        assert answer.status_code in (200, 422), answer.text
        told = answer.json()
        assert (told["epsilon"]["total"] if answer.status_code == 200 else charged) == charged
    answer = party.client().post(url, json=RECTANGLE | {"epsilon": 0.1 + 0.2})
    assert answer.status_code == 422
    assert "9 decimals" in answer.json()["detail"]


# --- commands and settings ----------------------------------------------------------------------------------

SHOWN = ("1_0", " 1", "1 ", "\uff11", "\u0661", "+1", "1,0", ".5", "0x1", "nan", "1e-400", "9" * 500, "\u22121")
GOOD = {
    "epsilon": "1.0",
    "budget": "3e0",
    "budget-delta": "1e-6",
    "prior-epsilon": "0.1",
    "clip-epsilon": "0.2",
    "clip-quantile": "0.90",
    "domain": "0:10:1",
    "missing-label": "0",
    "max-examples-per-unit": "2",
    "retention-days": "30",
    "alert-percent": "80",
}
GIVEN: dict[str, dict[str, str]] = {
    "clip-epsilon": {"clip-quantile": "0.9"},
    "clip-quantile": {"clip-epsilon": "0.1"},
    "max-examples-per-unit": {"unit-column": "user", "missing-label": "0"},
}


@pytest.mark.parametrize("option", GOOD)
def test_options_of_privatize(option: str, run: Run, labels: Path, home: Path) -> None:
    more = GIVEN.get(option, {})
    table = pq.read_table(labels)
    pq.write_table(table.append_column("user", table["example_id"]), labels)
    for bad in SHOWN:
        value = f"0:{bad}" if option == "domain" else bad
        refused(run(*arguments(labels, "m.parquet", **(more | {option: value}))), 2)
        assert not (home.parent / "m.parquet").exists()
    if (home / "keys").exists():
        assert run("budget", "--json").json == []
    assert run(*arguments(labels, "m.parquet", **(more | {option: GOOD[option]}))).code == 0


@pytest.mark.parametrize("name", ["PORT", "LEASE_SECONDS", "ROWS_PER_FILE"])
def test_settings(name: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for bad in SHOWN[:8]:
        monkeypatch.setenv(f"LABELS_PARTY_{name}", bad)
        refused(run("budget"), 2, f"LABELS_PARTY_{name}")
    monkeypatch.setenv(f"LABELS_PARTY_{name}", "2000")
    assert "no labels party" in run("budget").err
