"""Events under crashes, lost answers and full disks, over REST.

Whatever happens, an upload of events is there wholly or not at all, and a repeated one counts once. `Shop` keeps every
history that the answers leave possible; each sealed batch must have the labels that the oracle gives for one of them.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from label_dp.errors import Unavailable
from label_dp.store.idempotency import IdempotentCall
from labels_party.labels.events import intake
from labels_party.labels.events.bodies import event_objects
from labels_party.labels.events.intake import EventUpload
from labels_party.labels.events.windows import EventWindows, Window
from labels_party.labels.sweep import DAY, Sweep
from labels_party.storage.tables import batch_keys, batches, event_windows, segments
from tests.support.events import RULE, EventShop, event, oracle
from tests.support.labels import LabelsParty
from tests.support.ledger_faults import CRASH, DROP, FULL, LOSE, Crash, Faults

ORDERS, VISITS = RULE["data_set_id"], "visits"
RULES = {ORDERS: RULE, VISITS: {"data_set_id": VISITS, "types": {"page_view": "+"}, "take": "count"}}
MOST = 100  # of both domains, which begin at 0
TRANSACTIONS = ["batch.create", "batch.discard", "events.begin", "events.store", "events.retire"]
TRANSACTIONS += ["seal.close", "seal.store"]
STORAGE = ["vault.write", "vault.stored", "vault.delete"]
POINTS = [f"{name}:{at}" for name in TRANSACTIONS for at in ("begin", "before-commit", "after-commit")]
POINTS += ["events.received", "seal.prepared", *STORAGE]
OURS = ("batch.", "events.", "seal.", "vault.")

Event = dict[str, Any]
History = tuple[str | int, ...]  # numbers of uploads and names of batches, in the order in which they came
Oracle = Callable[..., dict[str, Any]]


class Died(Exception):
    """Death of the service within a call; an Exception, so that the server of these tests hands on that it failed."""


class Shop:
    """A labels party that dies and comes back, and what may have happened by its answers."""

    def __init__(self, home: Path, key: str, of_events: Oracle = oracle) -> None:
        self.home, self.key, self.oracle = home, key, of_events
        self.faults, self.points = Faults(), set[str]()
        self.histories: set[History] = {()}
        self.uploads: list[list[Event]] = []
        self.streams: list[bool] = []
        self.open: dict[str, str] = {}  # open batches, with their data sets
        self.ids: dict[str, list[str]] = {}
        self.opened = {name: count() for name in RULES}
        self.calls, self.deaths = count(), 0
        self.start()

    # --- the party ------------------------------------------------------------------------------------------

    def start(self) -> None:
        self.dead = False
        self.faults.calm()
        self.party = LabelsParty(self.home, faults=self.reach, worker=False)
        self.client = self.party.client()
        self.client.headers["Authorization"] = f"Bearer {self.key}"
        vault = self.party.services.vault
        put, delete = vault.put_records, vault.delete

        def put_records(key: str, parts: Any) -> int:
            self.reach("vault.write")
            rows = put(key, parts)
            self.reach("vault.stored")
            return rows

        def delete_one(key: str) -> None:
            self.reach("vault.delete")
            delete(key)

        vault.put_records = put_records  # type: ignore[method-assign]  # so that a test can die there
        vault.delete = delete_one  # type: ignore[method-assign]  # so that a test can die there

    def close(self) -> None:
        self.faults.calm()
        self.party.__exit__()

    def reach(self, point: str) -> None:
        """The fault hook of the party, and of its storage."""
        if point.startswith("apikey."):
            return  # in a thread for which no call waits
        self.points.add(point)
        try:
            self.faults(point)
        except Crash:
            self.dead = True
            raise Died(point) from None

    def arm(self, kind: str, at: str | int) -> None:
        """Die at a named point, or fail at the n-th place where that can be."""
        if isinstance(at, str):
            self.faults.at(at)
        else:
            self.faults.arm(kind, at)

    def answer(self, call: Callable[[], httpx.Response]) -> httpx.Response | None:
        """The answer of a call; None if whoever called cannot know what came of it."""
        with self.faults.disk():
            answer = call()
        if self.dead:
            self.deaths += 1
            self.close()
            self.start()
            return None
        assert answer.status_code in (200, 201, 204, 503), answer.text
        return None if answer.status_code == 503 else answer

    def ask(self, method: str, path: str, key: str, body: Any = None) -> httpx.Response | None:
        headers = {"Idempotency-Key": key}
        return self.answer(lambda: self.client.request(method, f"/v1/{path}", json=body, headers=headers))

    # --- moves ----------------------------------------------------------------------------------------------

    def create(self, data_set: str) -> None:
        """Open a batch of a data set, with two examples of its own."""
        key, number = f"call-{next(self.calls)}", next(self.opened[data_set])
        create = partial(self.ask, "POST", f"populations/{data_set}/batches", key, {})
        answer = create() or create()
        assert answer is not None
        batch = str(answer.json()["id"])
        self.histories = {(*history, batch) for history in self.histories}
        self.open[batch], self.ids[batch] = data_set, [f"{number}a", f"{number}b"]
        fill = partial(self.ask, "PUT", f"batches/{batch}/examples", key + "-list", {"example_id": self.ids[batch]})
        assert fill() or fill()

    def send(self, events: list[Event], *, stream: bool = False) -> int:
        """Send events, as a `stream` past the client, which sends bodies whole; return the number of the upload."""
        self.uploads.append(events)
        self.streams.append(stream)
        self.repeat(len(self.uploads) - 1)
        return len(self.uploads) - 1

    def repeat(self, number: int) -> None:
        """Send an upload with its key, for the first time or again."""
        events = self.uploads[number]
        if self.streams[number]:
            answer = self.answer(lambda: self._streamed(number, events))
        else:
            answer = self.ask("POST", "events", f"events-{number}", events)
        after = {history if number in history else (*history, number) for history in self.histories}
        if answer is None:
            self.histories |= after
        else:
            assert answer.json() == {"accepted": len(events)}
            self.histories = after

    def _streamed(self, number: int, events: list[Event]) -> httpx.Response:
        services = self.party.services
        call = IdempotentCall(services.idempotency, "a sender", f"events-{number}", f"{number}")
        parts = [event_objects(row, [one]) for row, one in enumerate(events)]
        try:
            status, body = services.events.add(EventUpload(lambda _: parts, call))
        except Died:
            return httpx.Response(500)
        except Unavailable:
            return httpx.Response(503)
        return httpx.Response(status, json=body)

    def seal(self, batch: str) -> bool:
        """Ask for the seal of an open batch; return whether it is sealed, and then has the labels of a history."""
        self.ask("POST", f"batches/{batch}/seal", f"seal-{batch}")
        if self._state(batch) != "sealed":
            return False
        self._compare(batch)
        return True

    def discard(self, batch: str) -> None:
        answer = self.ask("DELETE", f"batches/{batch}", f"discard-{batch}")
        if self._state(batch) is None:
            data_set = self.open.pop(batch)
            if answer is not None and data_set not in self.open.values():
                assert data_set not in self._windows()

    def finish(self) -> None:
        """Seal what is open, and find nothing left that no row names, and no window that no batch needs."""
        self.faults.calm()
        for batch in list(self.open):
            assert self.seal(batch)
        s = self.party.services
        s.sealer.events.windows.retire()
        sweep = Sweep(s.database, s.vault, self.home / ".later", now=lambda: time.time() + 2 * DAY)
        sweep.run()
        look = s.database.read
        assert set(s.vault.keys("")) == set(look("keys", lambda c: c.execute(sa.select(segments.c.key)).scalars()))
        assert self._windows() == []
        keys, names = (sa.select(column) for column in (batch_keys.c.batch, batches.c.id))
        assert look("keys", lambda c: set(c.execute(keys).scalars()) == set(c.execute(names).scalars()))
        self.histories = {()}

    # --- what is seen ---------------------------------------------------------------------------------------

    def _state(self, batch: str) -> str | None:
        answer = self.client.get(f"/v1/batches/{batch}")
        return None if answer.status_code == 404 else str(answer.json()["state"])

    def _windows(self) -> list[str]:
        """The data sets of all windows."""
        query = sa.select(event_windows.c.data_set)
        return self.party.services.database.read("windows", lambda c: list(c.execute(query).scalars()))

    def _compare(self, batch: str) -> None:
        """Keep the histories that give the labels of a sealed batch."""
        data_set = self.open.pop(batch)
        records = self.client.get(f"/v1/batches/{batch}/events").json()["records"]
        labels = self.party.sealed_positions(batch)

        def fits(history: History) -> bool:
            uploads = [self.uploads[n] for n in history[history.index(batch) :] if isinstance(n, int)]
            events = [one for upload in uploads for one in upload if one["data_set_id"] == data_set]
            of_oracle = self.oracle(events, RULES[data_set], dict.fromkeys(self.ids[batch]))
            return records == len(events) and labels == {
                name: min(max(int(of_oracle.get(name, 0)), 0), MOST) for name in self.ids[batch]
            }

        self.histories = {history for history in self.histories if fits(history)}
        assert self.histories, f"no history gives the labels of {batch}: {labels}, of {records} records"


# --- what is played ---------------------------------------------------------------------------------------------


def visit(click: str | None, **members: Any) -> Event:
    return event(click, data_set_id=VISITS, event_type="page_view", **members)


def live(shop: Shop) -> None:
    """A life with each kind of call: merges, a refund, a repeated call, two data sets in one upload, a discard."""
    shop.create(VISITS)
    shop.create(ORDERS)
    visits, orders = list(shop.open)[-2:]
    one, two = shop.ids[orders]
    first = shop.send([event(one, 20, id="1"), visit(shop.ids[visits][0]), event(two, 7)])
    shop.send([event(one, 30, id="1"), event(two, 2, event_type="refund"), visit(one)], stream=True)
    shop.create(ORDERS)
    shop.send([event(two, 1), event(None, id="1", event_type="refund")])
    shop.repeat(first)
    shop.discard(list(shop.open)[-1])
    shop.seal(orders)
    shop.finish()


clicks = st.sampled_from([None, "0a", "0b", "1a", "1b", "2a", "unlisted"])
ids = st.sampled_from([None, "1", "2"])
bought = st.sampled_from(["purchase", "purchase", "refund"])
order = st.builds(event, clicks, st.sampled_from([None, 1, 20, 90]), id=ids, event_type=bought)
uploads = st.lists(st.one_of(order, order, st.builds(visit, clicks, id=ids)), min_size=1, max_size=5)
faults = st.one_of(
    st.just(("", 0)),
    st.tuples(st.just(CRASH), st.sampled_from(POINTS)),
    st.tuples(st.sampled_from([DROP, LOSE, FULL]), st.integers(1, 2)),
)
moves = st.sampled_from(["send", "send", "stream", "repeat", "create", "seal", "discard", "restart"])
steps = st.lists(st.tuples(moves, faults, uploads, st.integers(0, 9)), min_size=4, max_size=14)


def play(shop: Shop, steps: list[Any]) -> None:
    shop.create(ORDERS)
    shop.create(VISITS)
    for move, (kind, at), events, number in steps:
        if kind:
            shop.arm(kind, at)
        batch = list(shop.open)[number % len(shop.open)] if shop.open else None
        if move in ("send", "stream"):
            shop.send(events, stream=move == "stream")
        elif move == "repeat" and shop.uploads:
            shop.repeat(number % len(shop.uploads))
        elif move == "create":
            shop.create(list(RULES)[number % 2])
        elif move == "restart":
            shop.close()
            shop.start()
        elif batch is not None:
            shop.seal(batch) if move == "seal" else shop.discard(batch)
        shop.faults.calm()
    shop.finish()


# --- tests ------------------------------------------------------------------------------------------------------

Open = Callable[..., Shop]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The home of a party with a population for each data set, and a key of its owner."""
    home = tmp_path_factory.mktemp("template") / "home"
    with LabelsParty(home, worker=False) as party:
        shop = EventShop(party)
        for name, rule in RULES.items():
            shop.population(name, **{"currency": None} | rule)
        return home, party.services.apikeys.create("owner", None)[1]


@pytest.fixture(autouse=True, scope="module")
def _several_objects_of_an_upload() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(intake, "OBJECT_ROWS", 2)
        yield


@pytest.fixture
def open_shop(template: tuple[Path, str], tmp_path: Path) -> Iterator[Open]:
    shops: list[Shop] = []

    def opened(**options: Any) -> Shop:
        shops.append(Shop(Path(shutil.copytree(template[0], tmp_path / "home")), template[1], **options))
        return shops[-1]

    yield opened
    for shop in shops:
        shop.close()


@settings(
    max_examples=20,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # to shrink takes minutes
)
@given(steps=steps)
def test_whatever_fails_labels_are_those_of_one_history(
    template: tuple[Path, str], tmp_path_factory: pytest.TempPathFactory, steps: list[Any]
) -> None:
    home, key = template
    shop = Shop(Path(shutil.copytree(home, tmp_path_factory.mktemp("shop") / "home")), key)
    try:
        play(shop, steps)
    finally:
        shop.close()


def test_a_crash_at_every_point_in_turn(open_shop: Open) -> None:
    shop = open_shop()
    for deaths, point in enumerate(POINTS, 1):
        shop.arm(CRASH, point)
        live(shop)
        assert shop.deaths == deaths, f"{point} is not reached"
    assert {point for point in shop.points if point.startswith(OURS)} == set(POINTS)


def test_an_oracle_without_merges_is_noticed(open_shop: Open) -> None:
    """The control: where each record is an event of its own, no history gives the labels."""

    def unmerged(records: list[Event], rule: Any, times: Any) -> dict[str, Any]:
        return oracle([record | {"id": None} for record in records], rule, times)

    with pytest.raises(AssertionError, match="no history"):
        live(open_shop(of_events=unmerged))


def test_a_party_that_forgets_its_calls_is_noticed(open_shop: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of repeated uploads: without idempotency one counts twice."""
    shop = open_shop()
    monkeypatch.setattr(IdempotentCall, "_judged", lambda _self, _row: None)
    with pytest.raises(AssertionError, match="no history"):
        live(shop)


def test_half_an_upload_is_noticed(open_shop: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of whole uploads: one data set's events are named in their window, and the other's are not."""
    shop, add = open_shop(), EventWindows.add

    def half(self: EventWindows, connection: Any, window: Window, key: str, rows: int) -> None:
        if window.data_set == ORDERS:
            add(self, connection, window, key, rows)

    monkeypatch.setattr(EventWindows, "add", half)
    with pytest.raises(AssertionError, match="no history"):
        live(shop)


def test_objects_that_a_crash_leaves_are_noticed(open_shop: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of the sweep."""
    shop = open_shop()
    monkeypatch.setattr(Sweep, "run", lambda _self: 0)
    shop.arm(CRASH, "events.received")
    with pytest.raises(AssertionError, match="evw_"):
        live(shop)
