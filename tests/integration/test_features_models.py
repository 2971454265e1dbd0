"""Models over REST: cards, comparison, schema, predictions, export, deletion."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from features_party.api.schemas_models import Card
from features_party.training.learners.ensemble import Ensemble
from tests.support.features_api import WORLD, Api, message_files, running
from tests.support.messages import Sender, laplace, one_bit, rr, world

pytestmark = pytest.mark.extended

ROW = {"age": 41.0, "country": "UK"}


@pytest.fixture
def sender() -> Sender:
    return Sender()


@pytest.fixture
def api(tmp_path: Path, sender: Sender) -> Iterator[Api]:
    with running(tmp_path, sender) as started:
        yield started


@pytest.fixture
def model(api: Api, sender: Sender, tmp_path: Path) -> str:
    api.accept(message_files(sender, tmp_path / "sent"))
    return api.trained()


def predict(api: Api, model: str, rows: Any, **options: Any) -> Any:
    return api.trainer.post(f"/v1/models/{model}/predict", json={"rows": rows, **options})


def test_quantiles_of_labels_where_the_outputs_tell_them(api: Api, model: str, sender: Sender, tmp_path: Path) -> None:
    """The model of `model` is linear."""
    api.accept(message_files(sender, tmp_path / "several", channel=laplace(epsilon=3.0), release="rel_several"))
    several, rows = api.trained(messages=("rel_several",), model="ensemble"), [ROW, ROW | {"age": 20.0}]
    found = predict(api, several, rows, quantiles=[0.1, 0.5, 0.9]).json()
    low, middle, high = np.array(found["quantiles"]).T
    assert np.all((low <= middle) & (middle <= high) & (low < high))
    alone = predict(api, several, rows).json()
    assert found["predictions"] == alone["predictions"]
    assert "quantiles" not in alone
    refused = predict(api, model, rows, quantiles=[0.5])
    assert refused.status_code == 422
    assert "knows no quantiles" in refused.json()["detail"]
    for wrong in ([0.0], [1.0], [0.5] * 100):
        assert predict(api, several, rows, quantiles=wrong).status_code == 422


# --- cards -------------------------------------------------------------------------------------------------


def test_a_card_says_what_the_model_was_trained_on_and_what_that_cost(api: Api, sender: Sender, tmp_path: Path) -> None:
    unit = {"kind": "unit", "column": "user", "max_examples": 3, "examples_beyond": 0}
    releases = (("rel_a", "bat_1", "3", "3"), ("rel_b", "bat_1", "1", "4"), ("rel_c", "bat_2", "3.5", "4"))
    for name, batch, epsilon, spent in releases:
        told: dict[str, Any] = {"epsilon": epsilon, "epsilon_spent": spent, "epsilon_lifetime": "10"}
        told["unit"] = unit | {"epsilon_per_unit": str(3 * int(spent))}
        channel = one_bit(epsilon=float(epsilon))
        api.accept(message_files(sender, tmp_path / name, channel=channel, release=name, batch=batch, **told))
    model = api.trained(messages=("rel_a", "rel_b", "rel_c"))
    card = api.trainer.get(f"/v1/models/{model}/card").json()
    first = card["messages"][0]
    assert (first["release"], first["population_name"], first["label"]) == ("rel_a", "shop", "revenue")
    assert first["epsilon"]["total"] == "3"
    assert (first["epsilon_spent"], first["epsilon_lifetime"]) == ("3", "10")
    assert first["unit"] == unit | {"epsilon_per_unit": "9"}
    (total,) = card["epsilon"]
    # two releases of one batch add up to 4, the other batch has 3.5
    assert (total["epsilon_per_example"], total["batches"], total["releases"]) == ("4", 2, 3)
    assert total["unit"] == {"column": "user", "max_examples": 3, "epsilon_per_unit": "12"}
    assert "Releases of one batch add up" in card["epsilon_rule"]
    assert card["seconds"] >= 0
    folder = api.services.models.folder(model)
    assert json.loads((folder / "card.json").read_text()) == card
    assert api.trainer.get(f"/v1/models/{model}").json() == {"id": model, "card": card}
    text = (folder / "card.md").read_text()
    assert api.trainer.get(f"/v1/models/{model}/card.md").text == text
    for part in ("rel\\_b", "ε = 4 per example", "12 per user", "3 of 10", "debias"):
        assert part in text, part


def test_the_card_is_markdown_for_who_prefers_it(api: Api, model: str) -> None:
    path = f"/v1/models/{model}/card"
    for accept in ("text/markdown", "text/markdown, application/json;q=0.5", "application/json;q=0.1, text/*"):
        answer = api.trainer.get(path, headers={"Accept": accept})
        assert answer.headers["content-type"].startswith("text/markdown"), accept
        assert answer.text.startswith("# Model card")
    for accept in ("application/json", "*/*", "", "text/markdown;q=0.2, application/json", "text/markdown;q=x"):
        assert api.trainer.get(path, headers={"Accept": accept}).json()["kind"] == "linear", accept
    assert api.trainer.head(path).status_code == 200


def test_names_do_not_become_markup(api: Api, sender: Sender, tmp_path: Path) -> None:
    from features_party.models.card_text import card_markdown

    def rename(document: dict[str, Any]) -> None:
        document["population"]["name"] = "a | b\n# <img src=x> [link](http://x) \u202e\u200b"

    api.accept(message_files(sender, tmp_path / "sent", edit=rename))
    card = api.trainer.get(f"/v1/models/{api.trained()}/card").json()
    text = card_markdown(card)
    assert "<img" not in text.replace("\\<", "")
    assert "\n# " not in text[1:]
    assert "[link]" not in text
    assert all(c.isprintable() or c == "\n" for c in text)


def test_every_member_of_a_card_is_in_the_openapi_document(api: Api, model: str) -> None:
    card = api.trainer.get(f"/v1/models/{model}/card").json()
    read = Card(**card)
    for part in (read, read.messages[0], read.epsilon[0], read.capacity, read.report, read.messages[0].correction):
        assert not part.model_extra, part.model_extra


# --- comparison --------------------------------------------------------------------------------------------


def test_models_side_by_side(api: Api, sender: Sender, tmp_path: Path) -> None:
    many = world(1500)
    data = {"sent": many, "prior": np.full(11, 1 / 11)}
    api.accept(message_files(sender, tmp_path / "a", release="rel_a", **data))
    api.accept(message_files(sender, tmp_path / "b", channel=rr(epsilon=3.0), release="rel_b", batch="bat_2", **data))
    table = api.table(many.table())
    one = api.trained(table, ("rel_a",), model="ensemble")
    two = api.trained(table, ("rel_b",))
    answer = api.trainer.get(f"/v1/models/compare?model={one}&model={two}")
    assert answer.status_code == 200, answer.text
    found = answer.json()
    first, second = found["models"]
    assert (found["label"], found["domain"], found["same_messages"]) == ("revenue", "0:10:1", False)
    assert (first["model"], first["kind"], first["mechanisms"]) == (one, "ensemble", ["test"])
    assert first["epsilon"] == [{"name": "shop", "epsilon_per_example": "3"}]
    assert first["gain"]["low"] < first["gain"]["mse_below_constant"] < first["gain"]["high"]
    # an ensemble shows the trees that it has, which validation chose, not those of the rule
    body = api.services.models.open(one).model.body
    assert isinstance(body, Ensemble)
    assert body.parts
    trees = [m.body.count for m in body.parts]
    names = [m.name for m in body.parts]
    assert first["members"] == [
        {"name": m.name, "weight": m.weight, "trees": count} for m, count in zip(body.parts, trees, strict=True)
    ]
    assert first["trees"] == (sum(count or 0 for count in trees) or None)
    card = api.services.models.open(one).card
    assert (card["members"], card["trees"]) == (first["members"], first["trees"])
    text = (api.services.models.folder(one) / "card.md").read_text()
    for name in names:
        weight = sum(member.weight for member in body.parts if member.name == name)
        assert (f"{weight:.2f} × {name}" if weight else name) in text
    assert (second["members"], second["trees"]) == ([], None)
    # randomized response on bins is biased: no gain, and why
    assert second["gain"] is None
    assert "does not show" in second["gain_why"] or "do not" in second["gain_why"]
    same = api.trainer.get(f"/v1/models/compare?model={one}&model={api.trained(table, ('rel_a',))}").json()
    assert same["same_messages"] is True


def test_what_cannot_be_compared(api: Api, sender: Sender, tmp_path: Path, model: str) -> None:
    other = world(400, high=20)
    files = message_files(
        sender,
        tmp_path / "other",
        other,
        one_bit("0:20", 3.0),
        release="rel_2",
        batch="bat_2",
        prior=np.full(21, 1 / 21),
    )
    api.accept(files)
    stranger = api.trained(messages=("rel_2",))
    answer = api.trainer.get(f"/v1/models/compare?model={model}&model={stranger}")
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid-input")
    for part in (model, stranger, "0:10:1", "0:20:1", "same label and domain"):
        assert part in answer.json()["detail"]
    assert api.trainer.get(f"/v1/models/compare?model={model}").status_code == 422
    assert api.trainer.get(f"/v1/models/compare?model={model}&model={model}").status_code == 422
    assert api.trainer.get(f"/v1/models/compare?model={model}&model=m_none").status_code == 404


# --- predictions -------------------------------------------------------------------------------------------


def test_the_schema_is_enough_to_build_a_request(api: Api, model: str) -> None:
    schema = api.trainer.get(f"/v1/models/{model}/schema").json()
    kinds = {column["name"]: column["kind"] for column in schema["columns"]}
    assert kinds == {"age": "number", "country": "category"}
    country = schema["columns"][1]
    assert sorted(country["categories"]) == ["DE", "FR", "UK", "US"]
    assert "null" in country["missing"]
    assert predict(api, model, [schema["example"]]).status_code == 200
    few = api.trainer.get(f"/v1/models/{model}/schema?categories=1").json()["columns"][1]
    assert (len(few["categories"]), few["categories_total"]) == (1, 4)


def test_unknown_categories_are_counted_or_refused(api: Api, model: str) -> None:
    rows = [ROW, ROW | {"country": "XX"}, ROW | {"country": None}, {"age": None, "country": "YY"}]
    answer = predict(api, model, rows).json()
    assert (answer["rows"], len(answer["predictions"])) == (4, 4)
    assert answer["unknown_categories"] == {"country": 2}
    assert answer["missing_values"] == {"age": 1, "country": 1}
    assert answer["predictions"][1] == answer["predictions"][2]  # unknown counts as missing
    refused = predict(api, model, rows, unknown_categories="refuse")
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid-rows")
    assert [(p["row"], p["field"]) for p in refused.json()["rows"]] == [(2, "country"), (4, "country")]
    assert "XX" not in refused.text
    assert predict(api, model, rows[:1], unknown_categories="refuse").json()["unknown_categories"] == {}


def test_columns_are_checked_by_name(api: Api, model: str) -> None:
    lacking = predict(api, model, [{"x": 1}])
    assert lacking.json()["code"] == "invalid-table"
    assert "'age', 'country'" in lacking.json()["detail"]
    extra = predict(api, model, [ROW, ROW | {"aeg": 3, "click_id": "c1"}])
    assert extra.status_code == 422
    assert "'aeg', 'click_id'" in extra.json()["detail"]
    assert predict(api, model, [ROW | {"aeg": 3}], unexpected_columns="ignore").status_code == 200
    # a row may leave a column out that another has
    assert predict(api, model, [ROW, {"age": 3}]).json()["missing_values"] == {"country": 1}


def test_columns_that_training_left_out_may_come_along(api: Api, sender: Sender, tmp_path: Path) -> None:
    api.accept(message_files(sender, tmp_path / "sent"))
    table = WORLD.table().append_column("session", pa.array([f"s{i}" for i in range(400)]))
    model = api.trained(api.table(table))
    assert predict(api, model, [ROW | {"session": "s1"}]).status_code == 200
    assert api.trainer.get(f"/v1/models/{model}/schema").json()["left_out"][0]["name"] == "session"


def test_a_model_that_looks_at_large_categories_asks_for_its_columns_only(
    api: Api, sender: Sender, tmp_path: Path
) -> None:
    api.accept(message_files(sender, tmp_path / "sent"))
    rng = np.random.default_rng(0)
    table = WORLD.table()
    for name in ("shop_id", "city"):
        table = table.append_column(name, pa.array([f"{name} {v}" for v in rng.integers(0, 80, len(table))]))
    model = api.trained(api.table(table), model="trees")
    columns = ["age", "country", "shop_id", "city"]
    schema = api.trainer.get(f"/v1/models/{model}/schema").json()
    assert [column["name"] for column in schema["columns"]] == columns
    assert list(schema["example"]) == columns
    row = ROW | {"shop_id": "shop_id 1", "city": "city 2"}
    rows = [row, row | {"shop_id": "none such"}, row | {"shop_id": None}, row | {"age": None, "city": None}]
    answer = predict(api, model, rows).json()
    assert answer["unknown_categories"] == {"shop_id": 1}
    assert answer["missing_values"] == {"age": 1, "city": 1, "shop_id": 1}
    assert answer["predictions"][1] == answer["predictions"][2]
    found = api.services.models.open(model)
    expected = found.model.predict(pa.table({name: [r[name] for r in rows] for name in columns}))
    assert answer["predictions"] == expected.tolist()
    assert predict(api, model, [row | {"city: rows": 1.0}]).status_code == 422

    card = api.trainer.get(f"/v1/models/{model}/card").json()
    assert [feature["name"] for feature in card["features"]] == columns
    assert {s["column"] for s in card["statistics"]} == {"shop_id", "city"}
    assert {"shop_id: rows", "shop_id: mean age", "age above that of its city"} <= {
        s["name"] for s in card["statistics"]
    }
    assert set(card["importance"]) <= {*columns, *(s["name"] for s in card["statistics"])}
    text = api.trainer.get(f"/v1/models/{model}/card.md").text
    assert f"{len(card['statistics'])} more numbers were made, without labels, of shop\\_id, city:" in text
    best = next(name for name in card["importance"] if name not in columns)
    assert f"| {best} | {card['importance'][best]:.1%} |".replace("_", r"\_") in text


def test_a_cell_of_the_wrong_kind_is_named(api: Api, model: str) -> None:
    answer = predict(api, model, [ROW, {"age": "old", "country": "UK"}, {"age": "older", "country": "UK"}])
    assert (answer.status_code, answer.json()["code"], answer.json()["rejected"]) == (422, "invalid-rows", 2)
    assert answer.json()["rows"][0] == {"row": 2, "field": "age", "rule": "a number or null is expected here"}
    assert "old" not in answer.text
    for cell in ([1], {"a": 1}):
        nested = predict(api, model, [ROW, {"age": cell, "country": "UK"}])
        assert nested.status_code == 422
        assert "rows.1.age" in nested.text
    assert predict(api, model, [{"age": True, "country": "UK"}]).status_code == 200  # a number, as in training


MALFORMED = [
    '{"rows": [{"age": NaN, "country": "UK"}]}',
    '{"rows": [{"age": Infinity, "country": "UK"}]}',
    '{"rows": [{"age": 1e999, "country": "UK"}]}',
    '{"rows": [{"age": 1' + "0" * 400 + ', "country": "UK"}]}',
    '{"rows": [{"age": 1' + "0" * 10_000 + ', "country": "UK"}]}',
    '{"rows": ' + "[" * 100_000 + "]" * 100_000 + "}",
    '{"rows": [{"age": ' + '{"a":' * 50_000 + "1" + "}" * 50_000 + "}]}",
    '{"rows": [{"age": 1, "country": "\\ud800"}]}',
    '{"rows": [{"age": 1, "age": 2, "country": "UK"}]}',
    '{"rows": [{}]}',
    '{"rows": {"age": 1}}',
    '{"rows": [null]}',
    '{"rows": [{"age": 1, "country": "UK"}], "unknown_categories": "guess"}',
    '{"rows": [{"age": 1, "country": "UK"}], "threads": 8}',
    "[]",
    "",
]


def test_malformed_requests_are_refused(api: Api, model: str) -> None:
    for body in MALFORMED:
        answer = api.trainer.post(
            f"/v1/models/{model}/predict", content=body.encode(), headers={"Content-Type": "application/json"}
        )
        assert answer.status_code == 422, body[:80]
        assert answer.headers["content-type"] == "application/problem+json"
        assert len(answer.text) < 5000


def test_too_many_rows_and_too_large_bodies(api: Api, model: str) -> None:
    assert predict(api, model, [ROW] * 100_001).status_code in (413, 422)
    assert predict(api, model, [{"age": 1, "country": "x" * (5 << 20)}]).status_code == 413
    answer = predict(api, model, [ROW] * 20_000)
    assert len(set(answer.json()["predictions"])) == 1


def test_dates_and_times_come_as_iso_8601(api: Api, sender: Sender, tmp_path: Path) -> None:
    api.accept(message_files(sender, tmp_path / "sent"))
    rng = np.random.default_rng(0)
    at = pa.array(rng.integers(1_600_000_000, 1_700_000_000, 400))
    table = pa.table(
        {
            "click_id": WORLD.ids,
            "day": pa.array(rng.integers(19_000, 19_700, 400).astype("int32")).cast(pa.date32()),
            "at": at.cast(pa.timestamp("s")),
            "zoned": at.cast(pa.timestamp("s", "Europe/Berlin")),
        }
    )
    model = api.trained(api.table(table))
    first = {"day": "2023-05-01", "at": "2023-05-01T12:00:00", "zoned": "2023-05-01T12:00:00Z"}
    rows = [
        first,
        first | {"zoned": "2023-05-01T14:00:00+02:00"},
        first | {"at": "2023-05-01 12:00:00.000", "zoned": "2023-05-01 12:00:00.000000000Z"},
        first | {"at": None, "zoned": None},
    ]
    found = predict(api, model, rows).json()["predictions"]
    assert found[0] == found[1] == found[2]
    columns = {c["name"]: c for c in api.trainer.get(f"/v1/models/{model}/schema").json()["columns"]}
    assert [columns[name]["holds"] for name in ("day", "at", "zoned")] == ["date", "time", "zoned time"]
    for row in (
        {"day": "1 May"}, {"day": 19_000}, {"day": "2023-05-01T12:00:00Z"}, {"at": "noon"},
        {"at": "2023-05-01T12:00:00Z"}, {"at": "2023-05-01T12:00:00+02:00"}, {"zoned": "2023-05-01T12:00:00"},
        {"zoned": "2023-05-01"},
    ):  # fmt: skip
        refused = predict(api, model, [first, first | row])
        assert (refused.json()["code"], refused.json()["rows"][0]["row"]) == ("invalid-rows", 2)
        assert "ISO 8601" in refused.json()["detail"]


def test_no_rows_are_no_predictions(api: Api, model: str) -> None:
    found = predict(api, model, []).json()
    assert (found["predictions"], found["rows"]) == ([], 0)


# --- export and deletion -----------------------------------------------------------------------------------


def test_export_over_rest(api: Api, sender: Sender, tmp_path: Path) -> None:
    api.accept(message_files(sender, tmp_path / "sent"))
    sums = api.trained(model="ensemble")
    assert "no trees alone" in api.trainer.get(f"/v1/models/{sums}/export?format=xgboost").json()["detail"]
    model = api.trained(model="trees")
    answer = api.trainer.get(f"/v1/models/{model}/export?format=xgboost")
    assert answer.headers["content-disposition"] == f'attachment; filename="{model}.xgboost.zip"'
    with zipfile.ZipFile(BytesIO(answer.content)) as archive:
        assert "booster.json" in archive.namelist()
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(api.trainer.get(f"/v1/models/{model}/export?format=onnx").content)
    given = {"age": np.array([[41.0]], np.float32), "country": np.array([["UK"]], object)}
    (found,) = session.run(None, given)
    assert found[0, 0] == pytest.approx(predict(api, model, [ROW]).json()["predictions"][0], rel=1e-5)
    assert api.trainer.get(f"/v1/models/{model}/export?format=pickle").status_code == 422
    assert api.trainer.get(f"/v1/models/{model}/export").status_code == 422
    assert api.auditor.get(f"/v1/models/{model}/export?format=onnx").status_code == 404
    linear = api.trained()
    assert "no trees" in api.trainer.get(f"/v1/models/{linear}/export?format=xgboost").json()["detail"]


def test_a_deleted_model_is_gone_with_its_files(api: Api, model: str) -> None:
    assert predict(api, model, [ROW]).status_code == 200  # now it is in memory
    assert api.auditor.delete(f"/v1/models/{model}").status_code == 404
    answer = api.trainer.delete(f"/v1/models/{model}")
    assert (answer.status_code, answer.content) == (204, b"")
    assert predict(api, model, [ROW]).status_code == 404
    assert api.trainer.get("/v1/models").json() == []
    assert list(api.services.home.models.iterdir()) == []
    assert api.trainer.delete(f"/v1/models/{model}").status_code == 404
    assert "model-trained" in [e["kind"] for e in api.auditor.get("/v1/audit/events").json()]


def test_a_model_that_another_process_deleted_is_not_served_from_memory(api: Api, model: str) -> None:
    import sqlalchemy as sa

    from features_party.storage import tables

    assert predict(api, model, [ROW]).status_code == 200
    api.services.database.write("test", lambda c: c.execute(sa.delete(tables.models)) and None)
    assert predict(api, model, [ROW]).status_code == 404


def test_a_feature_table_in_use_stays_until_its_training_has_ended(tmp_path: Path, sender: Sender) -> None:
    with running(tmp_path, sender, worker=False) as api:
        api.accept(message_files(sender, tmp_path / "sent"))
        table = api.table()
        row = api.trainer.post("/v1/trainings", json={"feature_table": table, "messages": ["rel_1"]}).json()
        refused = api.trainer.delete(f"/v1/feature-tables/{table}")
        assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
        assert row["id"] in refused.json()["detail"]
        api.trainer.post(f"/v1/trainings/{row['id']}/cancel")
        assert api.trainer.delete(f"/v1/feature-tables/{table}").status_code == 204
        assert api.trainer.get(f"/v1/feature-tables/{table}").status_code == 404
        assert list(api.services.home.feature_tables.iterdir()) == []
        assert api.trainer.delete(f"/v1/feature-tables/{table}").status_code == 404


def test_deleting_a_table_by_path_leaves_the_file(api: Api, tmp_path: Path) -> None:
    (tmp_path / "data" / "f.csv").write_bytes(b"click_id,age\n1,2\n2,3\n")
    body = {"path": "f.csv", "id_column": "click_id"}
    table = api.trainer.post("/v1/feature-tables", json=body).json()["id"]
    assert api.trainer.delete(f"/v1/feature-tables/{table}").status_code == 204
    assert (tmp_path / "data" / "f.csv").exists()


def test_an_alias_names_one_model_at_a_time(api: Api, model: str) -> None:
    second = api.trained()
    set_to = "/v1/models/{}/aliases/{}".format
    for name, alias in ((model, "champion"), (second, "challenger"), ("challenger", "champion")):
        assert api.trainer.put(set_to(name, alias)).status_code == 204
    rows = {row["id"]: row["aliases"] for row in api.trainer.get("/v1/models").json()}
    assert rows == {model: [], second: ["challenger", "champion"]}
    answer = predict(api, "champion", [ROW]).json()
    assert answer["model"] == second  # the answer says which one it was
    assert answer["predictions"] == predict(api, second, [ROW]).json()["predictions"]
    assert api.trainer.get("/v1/models/champion").json()["id"] == second
    assert api.trainer.get("/v1/models/champion/schema").json()["model"] == second
    for path in ("card", "card.md", "export?format=onnx"):
        about = api.trainer.get(f"/v1/models/champion/{path}")
        assert about.content == api.trainer.get(f"/v1/models/{second}/{path}").content
    for wrong in ("m_1", "compare", "Champion", "-x", "x" * 41):
        assert api.trainer.put(set_to(model, wrong)).status_code == 422, wrong
    assert api.trainer.put(set_to("m_none", "champion")).status_code == 404
    assert api.trainer.delete(set_to(model, "champion")).status_code == 404  # it names the other one
    assert api.trainer.delete("/v1/models/champion").status_code == 404  # only an id names what goes for good
    assert api.trainer.delete(f"/v1/models/{second}").status_code == 204
    assert predict(api, "champion", [ROW]).status_code == 404


def test_a_training_keeps_the_model_that_an_alias_named(api: Api, sender: Sender, tmp_path: Path) -> None:
    api.accept(message_files(sender, tmp_path / "sent"))
    earlier = api.trained(model="trees")
    assert api.trainer.put(f"/v1/models/{earlier}/aliases/champion").status_code == 204
    model = api.trained(model="trees", warm_start="champion")
    request = api.trainer.get(f"/v1/trainings/{model.replace('m_', 'tr_')}").json()["request"]
    assert request["warm_start"] == earlier
