"""What an ingest key's calls cost does not depend on which ids have a record, over any sequence of its calls.

Two worlds have as many records, of other ids, which other systems sent. One sequence of calls goes to both. Each call
must write and read the same bytes, with the same calls of the folder or the store and the same statements to the
database, the merge that it sets off included. Durations of a refused call, and of comparing whole sets, are held to a
tenth by a signed-rank test (Wilcoxon 1945), which errs with probability 10⁻⁶. The controls are what the work was like
before.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import wilcoxon

from label_dp.errors import InvalidRows
from labels_party.labels import recorder, small_uploads
from labels_party.labels.chunks import Findings
from labels_party.labels.comparison import Compared
from labels_party.labels.digests import LOADED_AFTER, kernels
from labels_party.labels.intake import Intake
from labels_party.labels.runs import EMPTY, Run, among, members, only, sort_run
from labels_party.labels.small_uploads import SmallUploads
from tests.support import object_store
from tests.support.call_costs import Costs
from tests.support.ingest_worlds import IDS, Rules, World, steps, two_worlds
from tests.support.labels import LabelsParty

pytestmark = pytest.mark.extended

Step = dict[str, Any]
LABELLED = (IDS[:3], IDS[5:])
MEDIA = ("application/json", "application/vnd.apache.arrow.stream")
HIDDEN = IDS[0]  # has a record in the first world alone
SHOP = {"name": "shop", "label": "r", "domain": "0:10", "lifetime_epsilon": "3"}


@pytest.fixture(params=["folder", "store"])
def objects(request: pytest.FixtureRequest) -> tuple[str, str]:
    if request.param == "folder":
        return "", ""
    request.getfixturevalue("bucket")
    server: object_store.Server = request.getfixturevalue("s3_server")
    return server.room().url, server.room().url


def call(ids: list[str], mode: str = "insert", media: str = "application/json") -> Step:
    """One of each way in: small texts wait together, tables do not."""
    deletes = mode == "delete"
    labels = {} if deletes else {"label": [0] * len(ids)}
    body = json.dumps({"example_id": ids} | labels).encode()
    if media != "application/json":
        table = pa.table({"example_id": ids} | labels)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        body = sink.getvalue().to_pybytes()
    step = {"what": "call", "path": "labels", "media": media, "body": body, "key": None}
    return step | ({"method": "DELETE", "params": {}} if deletes else {"method": "POST", "params": {"mode": mode}})


def chain(media: str) -> list[Step]:
    """One bit would become many: the first upload has the id, and each that follows has one of the first's. Some come
    again as they were."""
    links = [f"link-{n}" for n in range(8)]
    found = [call([HIDDEN, *links], media=media)]
    found += [call([link, *(f"{link}-{i}" for i in range(40))], media=media) for link in links]
    found += [found[0], found[1], *(call([f"fresh-{n}"], media=media) for n in range(2)), found[0]]
    found += [call([HIDDEN], mode, media) for mode in ("delete", "upsert", "insert", "delete")]
    found += [call([IDS[1]], "delete", media), call([IDS[2]], "upsert", media), call(IDS[1:3], media=media)]
    return [*found, call(["link-0-0", "more", "more"], media=media), call(["last"], media=media)]


def differing(worlds: list[World], calls: list[Step]) -> Iterator[tuple[Step, Any]]:
    """The calls that cost something else in one world than in the other, and what."""
    costs = [Costs(world.party) for world in worlds]
    for step in calls:
        seen = []
        for world, cost in zip(worlds, costs, strict=True):
            cost.taken()
            answer = world.do(step)
            seen.append((answer, cost.taken()))
        (one, wrote), (other, also) = seen
        if step["what"] == "call":
            assert one == other
            assert wrote.total() > 10
            if wrote != also:
                yield step, (wrote - also, also - wrote)


@pytest.mark.parametrize("media", MEDIA)
def test_a_chain_of_uploads_costs_the_same_whichever_ids_have_a_record(
    media: str, objects: tuple[str, str], tmp_path: Path
) -> None:
    with two_worlds(tmp_path, Rules("public", "0", scheduled=False), LABELLED, objects) as worlds:
        assert list(differing(worlds, chain(media))) == []


@pytest.mark.parametrize("rules", [Rules("public", "0", scheduled=True), Rules("id-list", None, scheduled=False)])
def test_any_sequence_costs_the_same_whichever_ids_have_a_record(
    rules: Rules, objects: tuple[str, str], tmp_path: Path
) -> None:
    for seed in range(1 if objects[0] else 3):  # a store is the slower of two
        with two_worlds(tmp_path / str(seed), rules, LABELLED, objects) as worlds:
            assert list(differing(worlds, list(steps(random.Random(f"{rules} {seed}"), 24)))) == []


def test_calls_after_a_seal_cost_the_same_whether_it_succeeded(objects: tuple[str, str], tmp_path: Path) -> None:
    """In the first world an upload is set aside, and the batch does not seal."""
    after = [call(["more"], mode, media) for mode in ("insert", "upsert", "delete") for media in MEDIA]
    after += [one | {"key": "k"} for one in after[:2]]
    calls = [call([HIDDEN]), {"what": "seal"}, *after, {"what": "wait", "hours": 13}, *after[:2]]
    with two_worlds(tmp_path, Rules("public", "0", scheduled=False), LABELLED, objects) as worlds:
        assert list(differing(worlds, calls)) == []
        states = [world.owner.get(f"/v1/batches/{world.batch}").json()["state"] for world in worlds]
        assert states == ["open", "sealed"]


def test_a_use_of_a_key_that_is_noted_late_counts_with_its_call(tmp_path: Path) -> None:
    """Noting holds the writers' lock, so that only a call which writes nothing ends before."""
    refused = call(["first"]) | {"path": "examples"}
    with two_worlds(tmp_path, Rules("public", "0", scheduled=False), LABELLED) as worlds:
        database = worlds[0].party.services.database
        database.fault = lambda point: time.sleep(0.2) if point == "apikey.used:begin" else None
        assert list(differing(worlds, [refused, refused])) == []


def without_digests_together(patch: pytest.MonkeyPatch) -> None:
    """Small uploads that are set aside leave no digests."""
    judged = SmallUploads._judged

    def plant(self: SmallUploads, *args: Any) -> Any:
        group, aside = judged(self, *args)
        counts = ~aside[group.of]
        return replace(group, run=only(group.run, counts), of=group.of[counts]), aside

    patch.setattr(SmallUploads, "_judged", plant)


def without_digests(patch: pytest.MonkeyPatch) -> None:
    """A large upload that is set aside leaves none."""
    finish = Compared.finish

    def plant(self: Compared, ids: Any) -> None:
        finish(self, ids)
        self.run = EMPTY if self.aside else self.run

    patch.setattr(Compared, "finish", plant)


def only_fresh(patch: pytest.MonkeyPatch) -> None:
    """Of an upsert or a deletion only those digests are written that no upload had."""
    finish = Compared.finish

    def plant(self: Compared, ids: Any) -> None:
        finish(self, ids)
        if self.submission.mode != "insert":
            self.run = only(self.run, ~among(self.run, self.known.taken.values()))

    patch.setattr(Compared, "finish", plant)


def rows_of_some(patch: pytest.MonkeyPatch) -> None:
    """Only an upload that is set aside has a row."""
    for module in (small_uploads, recorder):
        note = module.note_inserts
        patch.setattr(module, "note_inserts", lambda c, b, k, found, now, note=note: note(
            c, b, k, [one for one in found if one.aside], now))  # fmt: skip


def repeated_where_taken(patch: pytest.MonkeyPatch) -> None:
    """An upload of an id with a record is looked at a second time."""
    attempt = Intake.add_small

    def plant(self: Intake, batch: str, uploads: Any) -> Any:
        found = attempt(self, batch, uploads)
        known = self.small_uploads._known[batch]
        if known.batch.set_aside:
            self.database.read("again", lambda c: self.batches.get(c, batch))
        return found

    patch.setattr(Intake, "add_small", plant)


PLANTS = {
    "without digests, together": without_digests_together,
    "without digests": without_digests,
    "only fresh digests": only_fresh,
    "rows of some": rows_of_some,
    "looked at again": repeated_where_taken,
}


@pytest.mark.parametrize("plant", PLANTS)
def test_control_what_told_before_is_found(
    plant: str, objects: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    PLANTS[plant](monkeypatch)
    alone = plant in ("without digests", "only fresh digests")
    media = "application/vnd.apache.arrow.stream" if alone else "application/json"
    with two_worlds(tmp_path, Rules("public", "0", scheduled=False), LABELLED, objects) as worlds:
        assert any(differing(worlds, chain(media)))  # the first is enough


# --- durations -------------------------------------------------------------------------------------------------

LINKS, ROWS, PAIRS, ALLOWED, ALPHA = 32, 6_000, 120, 0.1, 1e-6


def labels(ids: list[str]) -> pa.Table:
    return pa.table({"example_id": ids, "label": [3.0] * len(ids)})


def chance(party: LabelsParty) -> float:
    """How probable the durations of a refused call are, after a chain with many rows, if they differ by no more than
    ALLOWED between a batch where the first upload's id has a record and one where it has none."""
    intake, links = party.services.intake, [f"link-{n}" for n in range(LINKS)]
    intake.compaction.close()  # so that many runs stay, and comparing is much of the time
    rows = {link: [f"{link}-{i}" for i in range(ROWS)] for link in links}
    probe = labels([*rows["link-0"], "link-0-0"])  # one id twice: nothing is stored, so that it can be repeated
    population = party.client().post("/v1/populations", json=SHOP).json()["id"]
    opened: list[str] = []
    for sent in (HIDDEN, "other"):
        batch = party.client().post(f"/v1/populations/{population}/batches", json={"presence": "public"}).json()["id"]
        for ids in ([sent], [HIDDEN, *links], *([link, *rows[link]] for link in links)):
            intake.add_labels(batch, labels(ids), owner=False)
        opened.append(batch)

    def clocked(batch: str) -> float:
        start = time.perf_counter()
        with pytest.raises(InvalidRows):
            intake.add_labels(batch, probe, owner=False)
        return time.perf_counter() - start

    return probability(lambda which: clocked(opened[which]))


def probability(took: Callable[[int], float]) -> float:
    """How probable the durations of two worlds are, timed in pairs, if they differ by no more than ALLOWED."""
    rng, pairs = random.Random(1), []
    for _ in range(PAIRS):
        pair = {which: min(took(which) for _ in range(2)) for which in rng.sample((0, 1), 2)}
        pairs.append((pair[0], pair[1]))
    found = np.array(pairs)
    differences = found[:, 1] - found[:, 0]
    beyond = differences - np.sign(np.median(differences)) * ALLOWED * np.median(found)
    if np.median(beyond) * np.median(differences) <= 0:
        return 1.0
    return float(wilcoxon(beyond, method="approx").pvalue)


def test_a_call_takes_as_long_whichever_ids_have_a_record(party: LabelsParty) -> None:
    assert chance(party) > ALPHA


def test_control_a_longer_call_is_found(party: LabelsParty, monkeypatch: pytest.MonkeyPatch) -> None:
    without_digests(monkeypatch)
    assert chance(party) < ALPHA


# --- whole sets: all ids of an upload have a record, or none ---------------------------------------------------


def digests(n: int, seed: int) -> Run:
    low, high = np.random.default_rng(seed).integers(0, 2**64, (2, n), dtype=np.uint64)
    return sort_run(low, high)[0]


def compared(rows: int, held: int, after: Callable[[Any], object]) -> float:
    """Of `rows` digests, all or none in a run of `held`."""
    runs = digests(held, 1), digests(held, 2)
    some = np.sort(np.random.default_rng(3).choice(held, rows, replace=False))
    asked = runs[0][0][some], runs[0][1][some]

    def took(which: int) -> float:
        start = time.perf_counter()
        after(members(runs[which], asked))
        return time.perf_counter() - start

    return probability(took)


@pytest.mark.parametrize("compiled", [True, False])  # without, a step takes many times as long
@pytest.mark.parametrize(("rows", "held"), [(100_000, 100_000), (2_000, 400_000), (50_000, 200_000)])
def test_comparing_takes_as_long_where_all_ids_are_there_as_where_none_is(
    rows: int, held: int, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "rows", LOADED_AFTER if compiled else -(10**12))
    less = 1 if compiled else 8
    assert compared(rows // less, held // less, np.count_nonzero) > ALPHA


def test_control_a_step_for_each_that_is_there_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows that were noted of them before."""
    monkeypatch.setattr(kernels, "rows", LOADED_AFTER)
    rows = np.random.default_rng(4).permutation(100_000)
    assert compared(100_000, 100_000, lambda marks: Findings().add_rows(rows[marks], "example_id", "")) < ALPHA
