"""Lives of batches in which a process is killed: at each named fault point once, or at random moments by a seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.support import object_store
from tests.support.ledger_parties import There
from tests.support.ledger_places import SqliteTemplate
from tests.support.ledger_process import Nursery
from tests.support.ledger_world import OPEN, SEALED, World

PARTS = (":begin", ":before-commit", ":after-commit")
CHARGES = ("release", "median", "calibrate", "predict", "predict", "predict")


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    # children are forked, and look for an object store's credentials there
    with pytest.MonkeyPatch.context() as environment:
        for name, value in object_store.CREDENTIALS.items():
            environment.setenv(name, value)
        with Nursery() as processes:
            yield processes


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> SqliteTemplate:
    return SqliteTemplate(tmp_path_factory.mktemp("template") / "home")


def _points(*names: str) -> list[str]:
    return [point for name in names for point in ([name] if "." in name and ":" in name else [name + p for p in PARTS])]


CREATE = _points("batch.create")
INGEST = ["upload.received", *_points("labels.store")]
SEAL = ["seal.prepared", *_points("seal.store")]
CHARGE = _points("release.charge")
DRAW = [
    *_points("release.lease"), "release.draw:begin", "release.draw:written", "release.draw:durable",
    *_points("release.publish"),
]  # fmt: skip
PURGE = [*_points("purge.begin"), "purge.delete:begin", "purge.delete:one", *_points("purge.forget")]
ANSWER = _points("answer.charge")
COMPUTE = [
    *_points("answer.lease"), "answer.draw:begin", "answer.draw:written", "answer.draw:durable",
    *_points("answer.publish"),
]  # fmt: skip
FEATURES = ["features.stored", *_points("features.store")]
PREDICTOR = _points("predictor.create")
TRAIN = [*_points("lease.take"), "predictor.trained", *_points("predictor.ready"), *_points("lease.end")]
PREDICT = [
    "prediction.draw:begin",
    "prediction.charged",
    "prediction.draw:before-commit",
    "prediction.draw:after-commit",
]
RETIRE = _points("predictor.retire")
ANSWERS = [*ANSWER, *COMPUTE, *FEATURES, *PREDICTOR, *TRAIN, *PREDICT, *RETIRE]
NAMED = [*CREATE, *INGEST, *SEAL, *CHARGE, *DRAW, *ANSWERS, *PURGE]


def replayed(world: World, party: There) -> None:
    """Every named point once: the call it belongs to is killed there, checked, and repeated until it is answered."""

    def killed(points: list[str], call: Callable[[], None]) -> None:
        for i, point in enumerate(points):
            party.kill_at(point)
            before = party.kills
            call()
            assert party.kills == before + 1, f"{point} is not reached any more"
            world.check()
            if i + 1 < len(points) and world.pending is not None and _again_possible(point):
                world.pending = None  # it did not happen: the next point is tried with the same call
            else:
                world.resolve()
                if i + 1 < len(points):
                    ready()  # what the next kill needs: a batch in the state before the call

    def nothing() -> None:
        pass

    batch = ""
    ready: Callable[[], None] = nothing
    killed(CREATE, lambda: world.create("public"))
    world.resolve()
    batch = list(world.batches)[-1]
    rows = iter(range(0, 1000, 2))
    killed(INGEST, lambda: world.ingest(batch, next(rows), 2, "insert"))
    killed(SEAL, lambda: world.seal(batch))
    killed(CHARGE, lambda: world.release(batch, "0.1", additional=world.batches[batch].carries))

    def waits(ask: Callable[[], None]) -> Callable[[], None]:
        """For the worker there is something of the batch to do: what was asked for is done otherwise."""

        def another() -> None:
            if not world.due(batch):
                ask()

        return another

    ready = waits(lambda: world.release(batch, "0.1", additional=True))
    killed(DRAW, world.work)
    world.work()
    ready = nothing
    killed(ANSWER, lambda: world.calibrate(batch, "0.05", additional=True))
    ready = waits(lambda: world.calibrate(batch, "0.05", additional=True))
    killed(COMPUTE, world.work)
    world.work()
    ready = nothing
    killed(FEATURES, lambda: world.features(batch))
    killed(PREDICTOR, lambda: world.predictor(batch, "0.05", "0.5", additional=True))
    ready = waits(lambda: world.predictor(batch, "0.05", "0.5", additional=True))
    killed(TRAIN, world.work)
    world.work()
    predictor = list(world.batches[batch].predictors)[-1]
    queries = iter(range(10))
    ready = nothing
    killed(PREDICT, lambda: world.predict(batch, predictor, next(queries)))
    killed(RETIRE, lambda: world.retire(batch, predictor))
    world.check()

    def sealed() -> None:
        nonlocal batch
        world.create("public")
        batch = list(world.batches)[-1]
        world.ingest(batch, 0, 3, "insert")
        world.seal(batch)
        world.features(batch)
        world.predictor(batch, "0.05", "0.5", additional=False)
        world.work()

    ready = sealed
    killed(PURGE, lambda: world.purge(batch))
    world.finish()


def _again_possible(point: str) -> bool:
    """Whether the call certainly had no effect when its process was killed there."""
    return not point.endswith(":after-commit") and not point.startswith(("purge.delete", "purge.forget"))


def random_kills(party: There, *, kills: int, calls: int, until: Callable[[], bool] = lambda: False) -> World:
    """Lives of batches, one call after the other, each likely to be killed; restarts check everything."""
    rng, world = party.rng, World(party)
    for number in range(calls):
        if party.kills >= kills or until():
            break
        if world.pending is not None and rng.random() < 0.8:
            world.resolve()
        if rng.random() < 0.7:
            party.kill_within(rng.choice([0.01, 0.05, 0.2]))
        if world.pending is not None:
            world.work()
        else:
            _move(world, number)
        world.check()
    world.finish()
    return world


def _move(world: World, number: int) -> None:
    rng = world.party.rng  # type: ignore[attr-defined]  # a `There`
    if not world.batches or rng.random() < 0.1:
        world.create(rng.choice(["public", "id-list"]))
        return
    name = rng.choice(list(world.batches)[-3:])
    batch = world.batches[name]
    if rng.random() < 0.2:
        world.work()
    elif batch.state == OPEN and batch.presence == "id-list" and not batch.listed:
        world.list(name, 40)
    elif batch.state == OPEN and (not batch.labelled or rng.random() < 0.3):
        world.ingest(name, rng.randrange(30), 10, "upsert")
    elif batch.state == OPEN:
        world.seal(name)
    elif batch.state == SEALED and rng.random() < 0.1:
        world.purge(name)
    elif batch.state == SEALED:
        _charge(world, name, rng.choice(CHARGES))
    else:
        world.create("public")
    if number % 10 == 9 and world.pending is None:
        world.restart()


def _charge(world: World, name: str, what: str) -> None:
    """A release or an answer; for a query first what it needs."""
    rng, batch = world.party.rng, world.batches[name]  # type: ignore[attr-defined]  # a `There`
    additional = rng.random() < 0.7
    usable = [p for p, known in batch.predictors.items() if not known.retired]
    if what != "predict":
        getattr(world, what)(name, rng.choice(["0.1", "0.3", "0.6"]), additional)
    elif not batch.features:
        world.features(name)
    elif not usable:
        world.predictor(name, "0.1", "0.5", additional)
    elif rng.random() < 0.1:
        world.retire(name, usable[-1])
    else:
        world.predict(name, usable[-1], rng.randrange(8))
