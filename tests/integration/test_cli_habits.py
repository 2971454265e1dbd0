"""Habits of both commands: tables at any width, --version, keys in scripts, no file overwritten."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass

import pytest

import features_party.cli
import labels_party.cli
from label_dp.cli.layout import lines, number

pytestmark = pytest.mark.extended

WHOLE = re.compile(  # what must never be broken: ids, timestamps, digests, numbers
    r"(?:bat|rel|pop)_[0-9a-f]{24}|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ|ed25519:[0-9a-f]{64}|\b[0-9a-f]{12}\b"
)


@dataclass
class Answer:
    code: int
    out: str
    err: str


Run = Callable[..., Answer]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("cli")
    rows = "".join(f"c{i},{i % 11 * 1000}\n" for i in range(4000))
    (folder / "labels.csv").write_text("click,revenue\n" + rows)

    def command(*words: str, party: str = "labels", columns: int = 80) -> Answer:
        main = labels_party.cli.main if party == "labels" else features_party.cli.main
        out, err, code = io.StringIO(), io.StringIO(), 0
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            patch.chdir(folder)
            patch.setattr(sys, "argv", [f"{party}-party", *words])
            patch.setenv("LABELS_PARTY_HOME", str(folder / "labels"))
            patch.setenv("FEATURES_PARTY_HOME", str(folder / "features"))
            patch.setenv("COLUMNS", str(columns))
            try:
                main()
            except SystemExit as stop:
                code = int(stop.code or 0)
        return Answer(code, out.getvalue(), err.getvalue())

    return command


@pytest.fixture(scope="module")
def world(run: Run) -> Run:
    """One message, keys with and without an end."""
    file = ("--labels", "labels.csv", "--id-column", "click", "--label-column", "revenue", "--out", "m.parquet")
    rules = ("--domain", "0:10000:1000", "--population", "shop-orders-of-the-year-2026", "--budget", "5")
    made = run("privatize", *file, *rules, "--epsilon", "1.5")
    assert made.code == 0, made.err
    assert "m.parquet.dsse.json, m.prior.parquet" in made.out
    for role in ("owner", "features"):
        assert run("apikey", "create", "--role", role, "--expires", "365").code == 0
    return run


TABLES = [
    ("budget",),
    ("audit", "show"),
    ("apikey", "list"),
    ("inspect", "m.parquet"),
    ("plan", "--population", "shop-orders-of-the-year-2026", "--epsilon", "1", "--n", "1234567"),
]


@pytest.mark.parametrize("words", TABLES, ids=lambda words: " ".join(words[:2]))
def test_tables_never_break_an_id_a_time_or_a_number(world: Run, words: tuple[str, ...]) -> None:
    wide = world(*words, columns=400)
    assert wide.code == 0, wide.err
    whole = WHOLE.findall(wide.out)
    assert whole or words[0] == "plan"
    for columns in (80, 60, 40):
        narrow = world(*words, columns=columns)
        assert sorted(WHOLE.findall(narrow.out)) == sorted(whole)
        figures = re.compile(r"[\d,]*\.?\d+")
        assert set(figures.findall(wide.out)) == set(figures.findall(narrow.out))
        grid = [line for line in narrow.out.splitlines() if not WHOLE.search(line) and not line.startswith("Model")]
        assert max(len(line) for line in grid if " " in line.strip()) <= max(columns, 80) or words[0] == "plan"


def test_numbers_have_one_format(world: Run) -> None:
    assert "n = 1,234,567" in world(*TABLES[4]).out
    assert re.search(r"sealed +4,000 ", world("budget", columns=120).out)
    data = json.loads(world("budget", "--json").out)
    assert data[0]["batches"][0]["examples"] == 4000
    assert data[0]["batches"][0]["epsilon_spent"] == "1.5"


def test_into_a_pipe_every_row_is_one_line(world: Run) -> None:
    out = world("apikey", "list", columns=0).out
    assert len([line for line in out.splitlines() if "owner" in line or "features" in line]) == 2


@pytest.mark.parametrize("party", ["labels", "features"])
def test_the_version(run: Run, party: str) -> None:
    answer = run("--version", party=party)
    assert answer.code == 0
    assert re.fullmatch(r"label-dp-service \d+\.\d+\.\d+\S*\n", answer.out)


@pytest.mark.parametrize(("party", "role"), [("labels", "owner"), ("features", "trainer")])
def test_a_key_alone_is_on_stdout_and_its_id_on_stderr(run: Run, party: str, role: str) -> None:
    made = run("apikey", "create", "--role", role, party=party)
    assert re.fullmatch(r"[lf]p_[\w-]{43}\n", made.out)
    key_id = re.search(r"id ([0-9a-f]{12}), role", made.err)
    assert key_id
    listed = run("apikey", "list", party=party)
    assert key_id[1] in listed.out
    assert made.out.strip() not in listed.out
    revoked = run("apikey", "revoke", key_id[1], "--json", party=party)
    assert json.loads(revoked.out) == {"revoked": key_id[1]}
    again = run("apikey", "revoke", key_id[1], party=party)
    assert (again.code, again.out) == (1, "")


@pytest.mark.parametrize(
    ("expires", "words"),
    [("2020-01-01", "expired already"), ("0", "expired already"), ("soon", "neither a number"), ("9" * 30, "neither")],
)
def test_an_expiry_that_makes_no_sense_is_bad_input(run: Run, expires: str, words: str) -> None:
    answer = run("apikey", "create", "--role", "owner", "--expires", expires)
    assert answer.code == 2
    assert words in answer.err
    assert answer.out == ""


def test_the_last_day_of_a_key_is_its_whole_day(run: Run) -> None:
    made = json.loads(run("apikey", "create", "--role", "owner", "--expires", "2999-12-31", "--json").out)
    assert made["expires"] == "3000-01-01T00:00:00Z"
    assert set(made) == {"id", "role", "name", "audience", "expires", "key"}


def test_no_output_is_overwritten_unless_forced(world: Run) -> None:
    first = world("audit", "export", "--out", "audit.json")
    assert first.code == 0, first.err
    again = world("audit", "export", "--out", "audit.json")
    assert again.code == 2
    assert "--force" in again.err
    assert world("audit", "export", "--out", "audit.json", "--force").code == 0
    release = json.loads(world("inspect", "m.parquet", "--json").out)["release"]
    message = world("message", release, "--out", "m.parquet")
    assert message.code == 2
    assert "never overwritten" in message.err
    assert world("message", release, "--out", "m.parquet", "--force").code == 2


# --- the layout itself -------------------------------------------------------------------------------------


def shown(columns: list[str], rows: list[list[str]], width: int) -> list[str]:
    return list(lines("title", columns, rows, width))


def test_columns_that_do_not_fit_stand_below_by_name() -> None:
    columns, rows = ["id", "time", "n"], [["bat_1", "2026-11-21T10:00:00Z", "1,000"], ["bat_2", "", "7"]]
    assert shown(columns, rows, 60) == [
        "title",
        " id     time                      n",
        " ──────────────────────────────────",
        " bat_1  2026-11-21T10:00:00Z  1,000",
        " bat_2                            7",
    ]
    assert shown(columns, rows, 30) == [
        "title",
        " id     time",
        " ───────────────────────────",
        " bat_1  2026-11-21T10:00:00Z",
        "    n: 1,000",
        " bat_2",
        "    n: 7",
    ]


def test_names_and_values_wrap_between_words_only() -> None:
    found = shown(["", ""], [["key", "ed25519:" + "a" * 64], ["note", "one two three four five six seven eight"]], 40)
    assert found[1] == f" key   ed25519:{'a' * 64}"
    assert found[2:] == [" note  one two three four five six seven", "       eight"]


def test_a_terminal_is_not_controlled_by_a_name() -> None:
    assert "\x1b" not in "".join(shown(["name"], [["\x1b[31mred\x07"]], 80))
    assert "\\x1b[31mred\\x07" in shown(["name"], [["\x1b[31mred\x07"]], 80)[-1]


def test_wide_characters_take_two_cells() -> None:
    assert shown(["a", "b"], [["売上", "x"], ["abcd", "y"]], 80)[3:] == [" 売上  x", " abcd  y"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"), (1234567, "1,234,567"), (1234567.0, "1,234,567"), (508162345.7, "508,162,346"), (0.5, "0.5"),
        (6688410.3, "6,688,410"), (100.0004, "100"),
        (12.34567, "12.3457"), (0.00012345, "0.000123"), (1.5e-7, "1.5e-07"), (-1234.5, "-1,234.5"), (None, ""),
        (float("inf"), "inf"), (1e20, "1e+20"),
    ],
)  # fmt: skip
def test_one_number_format(value: float | None, text: str) -> None:
    assert number(value) == text
