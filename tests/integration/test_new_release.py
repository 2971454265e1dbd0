"""The pages of a new release: from a CSV file to a published message, by the services that REST calls."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

import labels_party
from label_dp.http.calls import LARGE_BODY
from tests.support.labels import LabelsParty
from tests.support.labels_api import published
from tests.support.labels_cli import Run
from tests.support.pages import Looker, signed_in

ROWS = 60
RULES = {"name": "shop", "label": "revenue", "domain": "0:40", "lifetime_epsilon": "2", "audiences": "news.example"}


def csv(*columns: str, label: str = "", first: int = 0, rows: int = ROWS) -> bytes:
    """A file with ids c0, c1, … and labels 0 … 36; `label` takes the place of the third one."""
    lines = [f"c{first + i},{label if label and i == 2 else i % 37}" for i in range(rows)]
    return ("\n".join([",".join(columns or ("click_id", "revenue")), *lines]) + "\n").encode()


def sent(person: Looker, path: str, data: bytes, examples: bytes | None = None, **fields: str) -> str:
    """The page after a form with files."""
    page = person.get(path).text
    once = re.search(r'name="once" value="(\w+)"', page)
    assert once is not None
    files = {"labels": ("labels.csv", data, "text/csv")}
    files |= {} if examples is None else {"examples": ("all.csv", examples, "text/csv")}
    form = {"csrf": person.token(path), "once": once[1]} | fields
    return str(person.client.post(path, data=form, files=files).text)


def begun(person: Looker, **rules: str) -> str:
    """The address of the form for files of a new population."""
    answer = person.post("/new", person.token("/new"), **(RULES | rules))
    assert answer.status_code == 303, answer.text
    return "/" + answer.headers["location"].removeprefix("./").partition("?")[0]


def batch_of(page: str) -> str:
    address = re.search(r'href="\.\./(batches/bat_\w+/release)\?id_column=(\w+)"', page)
    assert address is not None, page
    return f"/{address[1]}"


def charged(person: Looker, path: str, epsilon: str = "1", **fields: str) -> Any:
    """The answer to the confirmation that follows the plan."""
    token = person.token(path)
    page = person.post(path, token, epsilon=epsilon, id_column="click_id").text
    once = re.search(r'name="once" value="(\w+)"', page)
    assert once is not None, page
    again = {"epsilon": epsilon, "id_column": "click_id", "sure": "yes", "once": once[1]} | fields
    first, second = (person.post(path, token, **again) for _ in range(2))  # pressed twice
    assert first.headers.get("location") == second.headers.get("location")
    return first


@pytest.fixture
def person(lite: LabelsParty) -> Looker:
    return signed_in(lite.client("owner"))


def test_a_file_becomes_a_message(lite: LabelsParty, person: Looker) -> None:
    path = begun(person)
    page = sent(person, path, csv())
    assert "60 rows, ids from click_id, labels from revenue" in page
    assert "from 0 to 36" in page  # of the labels: the owner alone sees it, and nothing was charged
    release = batch_of(page)
    batch = release.split("/")[2]
    assert lite.spent(batch) == "0"
    plan = person.get(f"{release}?epsilon=0.5&id_column=click_id").text
    assert "ε 0.5 of the 2 that an example of shop may spend, for ever; 1.5 is left." in plan
    assert "--id-column click_id" in plan
    confirmed = person.post(release, person.token(release), epsilon="0.5").text
    assert "The batch is sealed first, for ever" in confirmed
    assert "Left after</dt><dd>ε 1.5" in confirmed
    assert lite.services.database.read("x", lambda c: lite.services.batches.get(c, batch))[0].state == "open"
    answer = charged(person, release, "0.5")
    name = answer.headers["location"].rpartition("/")[2].partition("?")[0]
    assert lite.spent(batch) == "0.5"
    lite.services.worker.drain()
    published(lite.client("owner"), name)
    last = person.get(f"/releases/{name}?id_column=click_id").text
    assert f'href="../releases/{name}/statement"' in last
    assert "labels_party.privatize(" in last
    assert "already. A further" in person.post(release, person.token(release), epsilon="0.5", sure="yes").text
    assert "both charges add up" in person.post(release, person.token(release), epsilon="0.5").text


def test_what_check_refuses_is_a_sentence_with_its_row_and_nothing_is_kept(lite: LabelsParty, person: Looker) -> None:
    path = begun(person)
    page = sent(person, path, csv(label="three"))
    assert "1 row has a label that is no finite number (the first is row 3)." in page
    twice = csv() + b"c1,5\n"
    assert "1 row has an id that occurs before" in sent(person, path, twice)
    assert "separates its values by semicolons" in sent(person, path, csv().replace(b",", b";"))
    assert "looks like a row" in sent(person, path, csv("c99", "7"), label_column="7", id_column="c99")
    assert "Excel workbook" in sent(person, path, b"PK\x03\x04" + csv())
    assert "Choose a CSV file" in sent(person, path, b"")
    cents = csv(rows=30) + b"".join(b"e%d,%d\n" % (i, 100 * (i % 30) + 1200) for i in range(30))
    assert "These look like cents" in sent(person, path, cents)  # advice, no refusal
    batches = lite.services.database.read("x", lambda c: lite.services.batches.of_population(c, path.split("/")[2]))
    assert len(batches) == 1


def test_columns_are_found_by_name_or_chosen_from_the_header(lite: LabelsParty, person: Looker) -> None:
    path = begun(person)
    data = b"when,who,what\n" + b"".join(b"d%d,c%d,%d\n" % (i, i, i % 9) for i in range(ROWS))
    page = sent(person, path, data)
    assert "nothing was kept of it" in page
    for name in ("when", "who", "what"):
        assert page.count(f'<option value="{name}">{name}</option>') == 2
    assert "ids from who, labels from what" in sent(person, path, data, id_column="who", label_column="what")
    one_twice = sent(person, path, data, id_column="who", label_column="who")
    assert "Choose its columns below" in one_twice


def test_a_list_of_all_examples_may_come_beside_it(lite: LabelsParty, person: Looker) -> None:
    path = begun(person, missing_label="0")
    everyone = b"click_id\n" + b"".join(b"c%d\n" % i for i in range(ROWS + 40))
    page = sent(person, path, csv(), everyone)
    assert "40 ids have each no label and take the missing-label value" in page
    release = batch_of(page)
    assert "100 examples" in person.get(release).text
    assert "--examples examples.csv" in person.get(release).text
    charged(person, release)
    assert lite.services.database.read("x", lambda c: lite.services.batches.get(c, release.split("/")[2]))[0].n == 100


def test_a_file_that_is_sent_twice_is_one_batch(lite: LabelsParty, person: Looker) -> None:
    path = begun(person)
    fields = {"csrf": person.token(path), "once": "a" * 24}
    files = {"labels": ("labels.csv", csv(), "text/csv")}
    pages = [person.client.post(path, data=fields, files=files).text for _ in range(2)]
    assert batch_of(pages[0]) == batch_of(pages[1])


def test_what_the_budget_does_not_allow_is_refused_before_the_seal(lite: LabelsParty, person: Looker) -> None:
    release = batch_of(sent(person, begun(person), csv()))
    assert "ε 3 would be refused: at most 2 is left for this batch." in person.get(f"{release}?epsilon=3").text
    page = person.post(release, person.token(release), epsilon="3", sure="yes").text
    assert "so at most 2 is left" in page
    assert 'name="sure"' not in page
    batch = lite.services.database.read("x", lambda c: lite.services.batches.get(c, release.split("/")[2]))[0]
    assert batch.state == "open"


def test_a_second_person_is_waited_for(lite: LabelsParty, person: Looker) -> None:
    release = batch_of(sent(person, begun(person, four_eyes="yes"), csv()))
    assert "nothing is charged before" in person.post(release, person.token(release), epsilon="1").text
    name = charged(person, release).headers["location"].rpartition("/")[2].partition("?")[0]
    assert lite.state(name).state == "accepted"
    assert lite.spent(release.split("/")[2]) == "0"
    page = person.get(f"/releases/{name}?id_column=click_id").text
    assert "It waits for a second person" in page
    assert "--as &#39;YOUR NAME&#39;" in page


def test_an_open_batch_is_discarded_after_a_question(lite: LabelsParty, person: Looker) -> None:
    path = batch_of(sent(person, begun(person), csv())).removesuffix("/release")
    token = person.token(path)
    assert "60 rows" in person.post(f"{path}/discard", token).text
    assert person.get(path).status_code == 200
    assert "done=discarded" in person.post(f"{path}/discard", token, sure="yes").headers["location"]
    assert person.get(path).status_code == 404


def test_a_declaration_that_is_refused_keeps_what_was_written(person: Looker) -> None:
    page = person.post("/new", person.token("/new"), **(RULES | {"domain": "0-40"})).text
    assert "A domain is written LO:HI" in page
    assert 'value="news.example"' in page
    page = person.post("/new", person.token("/new"), **(RULES | {"retention_days": "soon"})).text
    assert "&#39;retention days&#39; is a whole number" in page
    assert "is empty; a population needs it" in person.post("/new", person.token("/new"), name="x").text
    begun(person)
    assert "exists already" in person.post("/new", person.token("/new"), **RULES).text


def test_no_file_of_labels_is_written_in_clear(
    lite: LabelsParty, person: Looker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(_: Any) -> None:
        raise AssertionError("a file of labels was written to a disk")

    monkeypatch.setattr("tempfile.SpooledTemporaryFile.rollover", refuse)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    page = sent(person, begun(person), csv(rows=150_000))
    assert "150,000 rows" in page
    assert not list(temporary.iterdir())
    stored = b"".join(p.read_bytes() for p in lite.home.rglob("*") if p.is_file())
    assert b"c14999" not in stored


RICH = {"missing_label": "0", "unit_column": "who", "max_examples_per_unit": "3", "retention_days": "30"}


def test_a_file_that_is_too_large_is_refused_by_a_page(person: Looker) -> None:
    path, data = begun(person), b"x" * (LARGE_BODY + 1)
    answer = person.client.post(path, content=data, headers={"Accept": "text/html,*/*;q=0.8"})
    assert answer.status_code == 413
    assert "<h1>Upload too large</h1>" in answer.text
    assert person.client.post(path, content=data).json()["code"] == "too-large"


@pytest.mark.parametrize("more", [{}, RICH, {"domain": "books,garden,toys", "out_of_domain": "refuse"}])
def test_the_command_and_the_python_lines_do_the_same(
    person: Looker, run: Run, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: dict[str, str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ("books", "garden", "toys") if "domain" in more else ("1", "22", "40")
    for file, first in (("labels.csv", 0), ("more.csv", 1000)):
        rows = (f"c{first + i},{words[i % 3]},p{first + i // 2}" for i in range(ROWS))
        Path(file).write_text("\n".join(["click_id,revenue,who", *rows]) + "\n")
    data = Path("labels.csv").read_bytes()
    release = batch_of(sent(person, begun(person, **more), data, id_column="click_id"))
    page = person.get(f"{release}?epsilon=0.5&id_column=click_id").text
    command, python = (
        re.sub("&#(39|34);|&quot;", lambda m: "'" if m[1] == "39" else '"', text)
        for text in re.findall(r'<pre class="copy"><code>(.*?)</code>', page, re.DOTALL)
    )
    result = run(*shlex.split(command.replace("\\\n", " "))[1:], "--json")
    assert result.code == 0, result.err
    assert result.json["population"] == "shop"
    space: dict[str, Any] = {"labels_party": labels_party}
    other = python.replace("labels.csv", "more.csv").replace("shop.message", "other.message")
    exec(other, space)  # of the page: what a person would paste
    assert space["message"].manifest.n == ROWS
