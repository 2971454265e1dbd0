"""`features-party models …`, on folders that `train` wrote and on the registry of the service."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from label_dp.pages.report import MOST_BYTES
from tests.support.features_api import WORLD, message_files, running
from tests.support.features_cli import Shell
from tests.support.messages import Sender

pytestmark = pytest.mark.extended


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Two models in folders `one` and `two`, two in the registry."""
    sender = Sender()
    sent = message_files(sender, tmp_path / "sent")
    with running(tmp_path, sender) as api:
        api.accept(sent)
        table = api.table()
        for name in ("first", "second"):
            api.trained(table, name=name)
    found = Shell(tmp_path)
    pq.write_table(WORLD.table(), tmp_path / "f.parquet")
    for out, model in (("one", "trees"), ("two", "linear")):
        found.run("train", "--message", "sent/m.parquet", "--features", "f.parquet", "--id-column", "click_id",
                  "--model", model, "--out", out)  # fmt: skip
    return found


def test_models_from_the_command_line(shell: Shell, tmp_path: Path) -> None:
    listed = shell.json("models", "list")
    assert [row["name"] for row in listed] == ["first", "second"]
    first, second = (row["id"] for row in listed)
    assert first in shell.run("models", "list").stdout

    text = shell.run("models", "show", first).stdout
    assert text == (tmp_path / "home" / "models" / first / "card.md").read_text()
    assert shell.json("models", "show", "one") == json.loads((tmp_path / "one" / "card.json").read_text())

    card = json.loads((tmp_path / "two" / "card.json").read_text())
    edited = {"epsilon_rule": "all\x1b[2J\u202e", "capacity": {"why": "small\x1b]0;title\x07"}}
    (tmp_path / "two" / "card.json").write_text(json.dumps(card | edited))
    shell.run("models", "sign", "two")
    shown = shell.run("models", "show", "two").stdout
    assert "\\x1b[2J" in shown
    assert not {"\x1b", "\x07", "\u202e"} & set(shown), "an edited card does not control a terminal"
    (tmp_path / "two" / "card.json").write_text(json.dumps(card))
    shell.run("models", "sign", "two")

    compared = shell.json("models", "compare", "one", "two", first)
    assert [m["kind"] for m in compared["models"]] == ["trees", "linear", "linear"]
    assert compared["same_messages"] is True
    shown = shell.run("models", "compare", "one", "two").stdout
    assert "not identified" in shown  # too few rows to hold some out, and it says so
    assert "too few rows" in shown
    assert "no model './three': no folder" in shell.refused("models", "show", "./three", code=1)
    assert "Compare 2" in shell.refused("models", "compare", "one", code=2)

    shell.run("models", "export", "one", "--format", "xgboost", "--out", "one.zip")
    with zipfile.ZipFile(tmp_path / "one.zip") as archive:
        assert "encoding.json" in archive.namelist()
    assert "--force" in shell.refused("models", "export", "one", "--format", "xgboost", "--out", "one.zip", code=2)
    pytest.importorskip("onnx")
    done = shell.json("models", "export", first, "--format", "onnx", "--out", "m.onnx")
    assert done["bytes"] == (tmp_path / "m.onnx").stat().st_size
    assert "choose one of" in shell.refused("models", "export", "one", "--format", "pmml", "--out", "x", code=2)
    assert "no trees" in shell.refused("models", "export", "two", "--format", "xgboost", "--out", "x", code=2)

    shell.run("models", "delete", second)
    assert [row["id"] for row in shell.json("models", "list")] == [first]
    assert not (tmp_path / "home" / "models" / second).exists()
    assert "no model" in shell.refused("models", "delete", second, code=1)
    assert "no model" in shell.refused("models", "show", "nothing", code=1)


def test_an_alias_stands_for_a_model(shell: Shell, tmp_path: Path) -> None:
    first, second = (row["id"] for row in shell.json("models", "list"))
    assert shell.json("models", "alias", first, "champion") == {"alias": "champion", "model": first}
    assert shell.json("models", "alias", "champion", "previous") == {"alias": "previous", "model": first}
    assert shell.json("models", "alias", second, "champion")["model"] == second
    assert [row["aliases"] for row in shell.json("models", "list")] == [["previous"], ["champion"]]
    assert "champion" in shell.run("models", "list").stdout
    card = shell.json("models", "show", "champion")
    assert card == shell.json("models", "show", second)
    given = ("--features", "f.parquet", "--id-column", "click_id")
    shell.run("predict", "--model", "champion", *given, "--out", "a.parquet")
    shell.run("predict", "--model", second, *given, "--out", "b.parquet")
    assert pq.read_table(tmp_path / "a.parquet").equals(pq.read_table(tmp_path / "b.parquet"))
    held_out = ("evaluate", "--model", "champion", "--examples", "f.parquet")
    assert shell.json(*held_out, "--label-column", "age")["rows"] == len(WORLD.ids)
    assert shell.json(*held_out, "--message", "sent/m.parquet", "--id-column", "click_id")["rows"] == len(WORLD.ids)
    (tmp_path / "champion").symlink_to(tmp_path / "one")  # a folder goes before an alias
    assert shell.json("models", "show", "champion")["kind"] == "trees"
    assert shell.json("models", "alias", second, "champion", "--remove") == {"alias": "champion", "model": None}
    assert "has no alias" in shell.refused("models", "alias", second, "champion", "--remove", code=1)
    assert "no model 'challenger': no folder" in shell.refused("models", "show", "challenger", code=1)
    assert "such as champion" in shell.refused("models", "alias", second, "m_champion", code=2)


def test_looking_makes_no_home(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    assert "keygen" in shell.refused("models", "list", code=1)
    assert list(tmp_path.iterdir()) == []


def test_a_warm_start_is_named_by_folder_or_id(shell: Shell, tmp_path: Path) -> None:
    asked = ("train", "--message", "sent/m.parquet", "--features", "f.parquet", "--id-column", "click_id")
    card = shell.json(*asked, "--model", "trees", "--warm-start", "one", "--out", "three")
    earlier = json.loads((tmp_path / "one" / "card.json").read_text())
    assert any(earlier["messages"][0]["release"] in note for note in card["notes"])
    linear = shell.json("models", "list")[0]["id"]
    assert "leave the warm start out" in shell.refused(*asked, "--warm-start", linear, "--out", "four", code=2)
    assert "There is no model 'm_none'" in shell.refused(*asked, "--warm-start", "m_none", "--out", "four", code=1)
    assert not (tmp_path / "four").exists()


def test_a_model_as_one_page(shell: Shell, tmp_path: Path) -> None:
    """Of a folder and of the registry; it stands alone, and a damaged card is refused with nothing written."""
    (first, *_) = (row["id"] for row in shell.json("models", "list"))
    for model, kind in (("one", "trees"), (first, "linear")):
        told = shell.json("report", "--model", model, "--out", f"{kind}.html")
        page = (tmp_path / f"{kind}.html").read_text(encoding="utf-8")
        assert told["model_sha256"] in page
        assert f"{kind}, squared loss" in page
        assert re.findall(r"""(?:src|href|url)\s*[=(]""", page.replace('href="#', "").replace("url(#", "")) == []
        assert len(page.encode()) < MOST_BYTES
        assert ("<svg" in page) == any(shell.json("models", "show", model)["importance"].values())
    assert "exists already" in shell.refused("report", "--model", "one", "--out", "trees.html", code=2)
    card = tmp_path / "one" / "card.json"
    edited = json.loads(card.read_text())
    del edited["capacity"]["effective_rows"]
    card.write_text(json.dumps(edited))
    shell.run("models", "sign", "one")
    assert "damaged" in shell.refused("report", "--model", "one", "--out", "again.html", code=2)
    assert not (tmp_path / "again.html").exists()
