"""Events from files: the labels and the counts of the calls, nothing of an event kept, every fault one sentence."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from label_dp.domain import Domain
from label_dp.errors import Conflict, LabelDPError
from label_dp.schemas.events import EventRule
from labels_party.labels.events import bodies, fold
from labels_party.labels.events.files import EventFile
from labels_party.ledger.event_rules import data_sets
from tests.support.asking import population as parse_population
from tests.support.asking import privatize
from tests.support.asking import request as parse_request
from tests.support.events import DATA_SET, DAY, RULE, SECOND, EventShop, event, event_table
from tests.support.labels import LabelsParty
from tests.support.labels_cli import Run, arguments, budgets, refused

IDS = ["a", "b", "c", "d", "e"]
TIMES = dict.fromkeys(IDS, SECOND - DAY) | {"d": SECOND + 1}
HISTORY = [
    event("a", 10, id="1"),
    event("a", 12.5, id="2"),
    event("a", 2.5, id="3", event_type="refund"),
    event(None, id="1", timestamp=SECOND + 1),
    event("b", 250),
    event("b", 200, event_type="refund"),
    event("c", 5, user_data={"click_id": "c", "mmt_only": True}),
    event("c", 5, event_type="page_view"),
    event("d", 5),  # before its click
    event("e", 5, timestamp=SECOND + 6 * DAY),
    event("e", 7, timestamp=SECOND + 5 * DAY),
    event("nobody", 5),
    event(None, 5),
    event("e", 9, currency_code="USD"),
]
WEEK = {"window_days": 7, "other_currency": "leave-out"}


def lines(events: Sequence[Any]) -> bytes:
    return "".join(json.dumps(one) + "\n\n" for one in events).encode()


FORMATS: dict[str, Callable[[Sequence[Any]], bytes]] = {
    "events.ndjson": lines,
    "events.jsonl": lines,
    "events.json": lambda events: json.dumps(events).encode(),
    "events.parquet": event_table,
    "part-0": event_table,  # Parquet whatever its name
}


def listed(folder: Path, ids: Sequence[str], times: dict[str, int] | None = None, **more: list[Any]) -> Path:
    """A list of examples with their times, as CSV."""
    columns = {"example_id": list(ids)} | more | ({} if times is None else {"time": [times[i] for i in ids]})
    rows = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    path = folder / "list.csv"
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def folded(
    party: LabelsParty, events: Path, examples: Path | None, name: str = "file", rules: Any = None, **rule: Any
) -> Any:
    """What `privatize` says of a file of events."""
    more = {"missing_label": 0, "events": EventRule(**(RULE | rule))} | (rules or {})
    population = parse_population(name, name, Domain.parse("0:100"), "3", **more)
    request = parse_request(party.services, population, epsilon="1", prior="uniform")
    return privatize(party.services, events, population, request, party.home.parent / f"{name}.parquet", examples)


def unspoilt(party: LabelsParty) -> None:
    """No population, batch, label or temporary file is left."""
    s = party.services
    assert s.database.read("test.populations", s.populations.list) == []
    assert [path for path in (*s.home.labels.rglob("*"), *s.home.spill.rglob("*")) if path.is_file()] == []


@pytest.fixture
def party(tmp_path: Path) -> Iterator[LabelsParty]:
    with LabelsParty(tmp_path / "home", worker=False) as made:
        yield made


def test_a_file_gives_the_labels_of_the_calls(tmp_path: Path, party: LabelsParty) -> None:
    shop = EventShop(party)
    batch = shop.open(shop.population(**WEEK), IDS, TIMES)
    shop.send(*HISTORY)
    labels, counts = shop.sealed(batch), shop.counts(batch)
    assert labels == {"a": 20, "b": 50, "c": 0, "d": 0, "e": 7}
    assert {"repeats", "mmt_only", "outside_window", "not_listed", "other_currency"} < counts.keys()
    for name, written in FORMATS.items():
        (tmp_path / name).write_bytes(written(HISTORY))
        shown = folded(party, tmp_path / name, listed(tmp_path, IDS, TIMES), f"of {name}", **WEEK)
        assert party.sealed_positions(shown["batch"]) == labels
        assert {rule: count for rule, count in shown["events"].items() if count} == counts
        assert shop.counts(shown["batch"]) == counts  # as the owner sees them over REST


def test_an_object_alone_is_a_file_of_one_event(tmp_path: Path, party: LabelsParty) -> None:
    (tmp_path / "one.json").write_text(json.dumps(event("a", 3)))
    shown = folded(party, tmp_path / "one.json", listed(tmp_path, ["a", "b"]))
    assert party.sealed_positions(shown["batch"]) == {"a": 3, "b": 0}


def test_events_and_units_go_together(tmp_path: Path, party: LabelsParty) -> None:
    ids = [f"click-{i}" for i in range(6)]
    path = listed(tmp_path, ids, dict.fromkeys(ids, SECOND), who=["x", "y"] * 3)
    (tmp_path / "events.ndjson").write_bytes(lines([event(click, 8) for click in ids]))
    units = {"unit_column": "who", "max_examples_per_unit": 2}
    shown = folded(party, tmp_path / "events.ndjson", path, rules=units, **WEEK)
    assert sorted(party.sealed_positions(shown["batch"]).values()) == [0, 0, 8, 8, 8, 8]


def test_events_of_other_data_sets_count_where_a_population_takes_them(tmp_path: Path, party: LabelsParty) -> None:
    events = [event("a", 3), event("a", 4, data_set_id="other"), event("b", 5, data_set_id="other")]
    (tmp_path / "events.ndjson").write_bytes(lines(events))
    with pytest.raises(LabelDPError, match="line 3, field 'data_set_id': names no data set"):
        folded(party, tmp_path / "events.ndjson", listed(tmp_path, ["a", "b"]))
    unspoilt(party)
    EventShop(party).population("other", data_set_id="other")
    shown = folded(party, tmp_path / "events.ndjson", listed(tmp_path, ["a", "b"]))
    assert party.sealed_positions(shown["batch"]) == {"a": 3, "b": 0}
    assert shown["events"]["records"] == 1
    with pytest.raises(Conflict, match=r"has its example id in user_data\.click_id already"):
        folded(party, tmp_path / "events.ndjson", listed(tmp_path, ["a"]), "third", example_id="ext.click")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("events.csv", b"a,b\n1,2\n", "is no Parquet file, and its name does not end in .json"),
        ("events.ndjson", b"", "There is no event in"),
        ("events.json", b"[]", "There is no event in"),
        ("events.parquet", event_table([event("a", 1)])[:-5], "is a truncated or damaged Parquet file"),
        ("events.ndjson", lines([event("a", 1)] * 2) + b"{", "line 5, field 'event': "),
        ("events.json", b"[1]", "Row 1 (counting from 1), field 'event': must be an event object"),
        ("events.json", b"[" + b" " * (5 << 20) + b"]", "has at most 4 MiB. Write more as NDJSON"),
        ("events.ndjson", lines([event("a", 12.5), event("a", 12.5, timestamp="soon")]), "line 3, field 'timestamp'"),
        ("events.parquet", event_table([event("a", 1), event("a", 2, timestamp=-1)]), "Row 2 (counting from 1), field"),
        ("events.parquet", event_table([event("a", 1, id=1.5)]), "field 'id': must be text of 1 to 1,024 bytes"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_and_leaves_nothing(
    tmp_path: Path, party: LabelsParty, name: str, content: bytes, said: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(LabelDPError) as error:
        folded(party, tmp_path / name, listed(tmp_path, ["a"]))
    assert said in error.value.detail
    assert "12.5" not in error.value.detail
    unspoilt(party)


def test_a_list_without_what_the_rule_needs_is_refused(tmp_path: Path, party: LabelsParty) -> None:
    (tmp_path / "events.ndjson").write_bytes(lines(HISTORY))
    for times, said in (
        ({}, "has no column 'time'"),
        ({"time": ["noon"]}, "field 'time': must be a number"),
        ({"time": [SECOND * 1000]}, "field 'time': must be whole seconds"),
    ):
        with pytest.raises(LabelDPError, match=said):
            folded(party, tmp_path / "events.ndjson", listed(tmp_path, ["a"], **times), **WEEK)
    with pytest.raises(LabelDPError, match="its batches need a list of example ids"):
        folded(party, tmp_path / "events.ndjson", None, **WEEK)
    unspoilt(party)


def test_a_file_is_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long its lines are together, or its row groups."""
    monkeypatch.setattr(bodies, "CHUNK_ROWS", 1000)
    events = [event(f"click-{i}", 1, id=str(i), note="x" * 300) for i in range(5000)]
    rule = data_sets([EventRule(**RULE)]).values()
    for name in ("events.ndjson", "events.parquet"):
        path = tmp_path / name
        path.write_bytes(FORMATS[name](events))
        pieces = list(EventFile.open(path).events(rule))
        assert sum(map(len, pieces)) == len(events)
        assert [piece.of("id") for piece in pieces] == [[str(number) for number in piece.numbers] for piece in pieces]
        if name == "events.ndjson":
            assert max(map(len, pieces)) <= 1000
            assert pieces[-1].lines is not None
            assert pieces[-1].lines[-1] == 9999
        else:
            assert {note for piece in pieces for note in piece.of("note")} == {None}  # no rule needs it


@pytest.mark.parametrize("name", ["events.ndjson", "events.parquet"])
def test_nothing_of_an_event_is_kept(
    tmp_path: Path, party: LabelsParty, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the fold goes through temporary files: they are not named, and encrypted."""
    monkeypatch.setattr(fold, "ROWS_OF_PART", 1 << 12)
    events = [event(f"CLICK-XQ-{i}", 3, id=f"ORDER-XQ-{i}", source="SOURCE-XQ") for i in range(40_000)]
    events += [event("a", 4)]
    (tmp_path / name).write_bytes(FORMATS[name](events))
    shown = folded(party, tmp_path / name, listed(tmp_path, ["a", "b"]))
    assert party.sealed_positions(shown["batch"]) == {"a": 4, "b": 0}
    assert shown["events"]["not_listed"] == 40_000
    s = party.services
    assert [key for key in s.vault.keys("") if key.startswith("evw_")] == []
    files = [path for path in party.home.rglob("*") if path.is_file()]
    assert len(files) > 5
    assert [path for path in files if b"-XQ" in path.read_bytes()] == []


# --- the command ---------------------------------------------------------------------------------------------

TOML = f'data_set_id = "{DATA_SET}"\ntypes = {{ purchase = "+", refund = "-" }}\ntake = "sum"\ncurrency = "EUR"\n'


@pytest.fixture
def files(home: Path) -> dict[str, str]:
    """Options of the command for a rule, events and a list of examples."""
    folder = home.parent
    (folder / "rule.toml").write_text(TOML)
    (folder / "events.ndjson").write_bytes(lines(HISTORY[:9]))
    path = listed(folder, IDS)
    return {"events": "events.ndjson", "rule": "rule.toml", "examples": path.name, "missing_label": "0"}


def of_events(files: dict[str, str], to: str = "m.parquet", **changes: str | None) -> list[str]:
    return arguments(Path("unused"), to, **({"labels": None, "domain": "0:100"} | files | changes))


def test_the_command_says_what_became_of_the_events(run: Run, home: Path, files: dict[str, str]) -> None:
    shown = run(*of_events(files), "--json").json
    assert shown["examples"] == 5
    assert {rule: count for rule, count in shown["events"].items() if count} == {
        "records": 9, "repeats": 1, "other_type": 1, "mmt_only": 1, "counted": 6, "examples": 3,
    }  # fmt: skip
    more = run(*of_events(files, "more.parquet"), "--additional-release")
    assert more.code == 0, more.err
    told = " ".join(more.out.split())
    assert "the labels of then were used" in told
    for words in (
        "not private: 9 records, and 3 examples with one that counts",
        "1 merged into an earlier record of the same event",
        "1 left out: of a type that the rule does not name",
        "6 counted",
    ):
        assert words in told
    assert "without a value" not in told
    with LabelsParty(home, worker=False) as party:
        assert party.sealed_positions(shown["batch"]) == {"a": 20, "b": 50, "c": 0, "d": 5, "e": 0}
        population = party.services.database.read("p", lambda c: party.services.populations.get(c, "shop"))
        assert population.events == EventRule(**RULE)
        scanned = party.services.database.read("a", lambda c: [*party.services.audit.scan(c)])
        audit = json.dumps([one.details for one in scanned])
        assert DATA_SET in audit
        assert "records" not in audit


def test_the_counts_are_shown_also_where_a_second_person_must_approve(run: Run, files: dict[str, str]) -> None:
    shown = run(*of_events(files, **{"as": "ann"}), "--four-eyes")
    assert shown.code == 0, shown.err
    assert "9 records" in shown.out


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"labels": "events.ndjson"}, "--labels, or one of events by --events, and not both"),
        ({"events": None, "rule": None}, "Name the file of labels by --labels"),
        ({"rule": None}, "--events and --rule go together"),
        ({"events": None, "labels": "x.csv"}, "--events and --rule go together"),
        ({"examples": None}, "--events needs --examples"),
        ({"rule": "absent.toml"}, "'absent.toml' cannot be read"),
        ({"events": "absent.ndjson"}, "'absent.ndjson' cannot be read"),
        ({"missing_label": None}, "needs a missing_label"),
        ({"out_of_domain": "refuse"}, "clipped to the domain"),
        ({"domain": "books,toys", "missing_label": "toys"}, "a domain of names"),
    ],
)  # fmt: skip
def test_options_that_do_not_fit_are_one_sentence(
    run: Run, home: Path, files: dict[str, str], changes: dict[str, str | None], said: str
) -> None:
    refused(run(*of_events(files, **changes)), 2, said)
    assert budgets(run, home) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("take = ", "'rule.toml' is not TOML: Invalid value (at end of document)"),
        (b"\xff\xfe", "'rule.toml' is not TOML: it is no text in UTF-8"),
        (TOML + 'window = 7\n', "In 'rule.toml': The member 'window' is not known here; the members are data_set_id"),
        (TOML.replace('"sum"', '"mean"'), "In 'rule.toml': The member 'take' must be 'any', 'count', 'sum'"),
        (TOML.replace('"-"', '"minus"'), "In 'rule.toml': The member 'types.refund' must be '+' or '-'"),
        (TOML.replace("data_set_id", "# "), "In 'rule.toml': The member 'data_set_id' is missing"),
        (TOML + 'window_days = "7"\n', "In 'rule.toml': The member 'window_days' must be a whole number"),
        (TOML + 'example_id = "click_id"\n', "In 'rule.toml': The member 'example_id' has another form"),
        (TOML.replace("purchase", "purchse"), "'purchse' is no type of event"),
        (TOML.replace('currency = "EUR"', ""), "names their currency"),
    ],
)  # fmt: skip
def test_a_rule_that_cannot_be_is_one_sentence_with_its_member(
    run: Run, home: Path, files: dict[str, str], text: str | bytes, said: str
) -> None:
    (home.parent / "rule.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
    refused(run(*of_events(files)), 2, said)
    assert budgets(run, home) == []


def test_a_population_keeps_its_rule_of_events(run: Run, home: Path, files: dict[str, str]) -> None:
    assert run(*of_events(files)).code == 0
    listed(home.parent, ["x", "y"])
    (home.parent / "rule.toml").write_text(TOML + 'mmt_only = "count"\n')
    refused(run(*of_events(files, "x.parquet")), 1, "other rules", "events")
    pq.write_table(pa.table({"example_id": ["x"], "label": [1]}), home.parent / "labels.parquet")
    refused(run(*arguments(Path("labels.parquet"), "x.parquet", domain="0:100", missing_label="0")), 1, "other rules")
