"""Randomness of whole draws: no word twice among threads, forks and fresh processes, and none at all means no release.

Words have 60 bits or more: a word comes twice by chance with probability below 10⁻⁸ in all.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import sys
import types
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from label_dp.channels.rr import RRChannel
from label_dp.errors import EpsilonNotProved, RandomnessUnavailable, Unavailable
from labels_party.mechanisms import entropy, sampling
from labels_party.mechanisms import prior as prior_module
from labels_party.mechanisms.entropy import Keystream, discrete_laplace
from labels_party.message import engine
from tests.support.labels import LabelsParty, label_table
from tests.support.streams import (
    WIDE,
    Words,
    in_forks,
    in_fresh_processes,
    in_threads,
    noise_drawn,
    repeated,
    without_kernel_randomness,
    words_drawn,
)

DRAWS = [(words_drawn, 200), (noise_drawn, 200)]
forks = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of forks where there are threads, as is tried here


@pytest.mark.processes
@forks
@pytest.mark.parametrize(("draw", "n"), DRAWS)
def test_draws_of_threads_forks_and_fresh_processes_share_no_word(draw: Callable[[int], Words], n: int) -> None:
    parts = in_forks(draw, 4, n)  # after import, before the first draw of this kind
    draw(1)
    parts += in_forks(draw, 4, n)  # after the first draw
    parts += in_threads(draw, 8, n)
    parts += in_fresh_processes(draw, 2, n)
    assert sum(part.size for part in parts) == 20 * n
    assert repeated(parts) == 0


@pytest.mark.processes
@forks
def test_control_a_keystream_kept_over_a_fork_or_held_constant_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Keystream()
    stream._pid = 0

    class Kept:
        def uint64(self, n: int) -> Any:
            stream._pid = os.getpid()  # without the check that Keystream makes
            return stream.uint64(n)

    monkeypatch.setattr(sampling, "Keystream", Kept)
    assert repeated(in_forks(words_drawn, 2, 50)) == 100
    monkeypatch.setattr(sampling, "Keystream", functools.partial(_Seeded, 1))
    assert repeated(in_threads(words_drawn, 3, 50)) == 100


class _Seeded:
    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def uint64(self, n: int) -> Any:
        return self.rng.integers(0, 1 << 64, n, dtype=np.uint64)


@pytest.mark.processes
@forks
def test_a_worker_forked_in_mid_draw_cannot_use_its_parents_words() -> None:
    stream = Keystream()
    stream.uint64(3)

    def go_on(n: int) -> Words:
        try:
            return stream.uint64(n).astype(np.int64)
        except RandomnessUnavailable:
            return np.full(n, -1)

    own, *children = in_forks(go_on, 3, 5)
    assert [set(child.tolist()) for child in children] == [{-1}] * 3
    assert -1 not in own


def test_noise_of_priors_never_comes_twice() -> None:
    assert repeated([noise_drawn(4) for _ in range(50)]) == 0


# --- a source that fails -------------------------------------------------------------------------------------


class Source:
    """The system's randomness as `entropy` sees it, failing from the given call on."""

    def __init__(self, failure: Exception | bytes, good_calls: int) -> None:
        self.failure, self.left, self.asked = failure, good_calls, 0

    def urandom(self, n: int) -> bytes:
        self.asked += 1
        if self.asked <= self.left:
            return os.urandom(n)
        if isinstance(self.failure, bytes):
            return self.failure
        raise self.failure


def refuses_to_be_seeded(*_args: object, **_kwargs: object) -> None:
    raise AssertionError("fell back on a weaker source")


def broken(patch: pytest.MonkeyPatch, source: Source) -> None:
    patch.setattr(entropy, "os", types.SimpleNamespace(urandom=source.urandom, getpid=os.getpid))
    for name in ("default_rng", "Generator", "randint", "random", "seed"):
        patch.setattr(np.random, name, refuses_to_be_seeded)


def files_of(party: LabelsParty, release: str) -> list[str]:
    folder = party.services.home.work / release
    return sorted(str(path) for path in folder.rglob("*") if path.is_file()) if folder.exists() else []


# what Python raises of a system that fails, and of one without a source; and too few bytes
@pytest.mark.parametrize("failure", [OSError("no entropy"), NotImplementedError("no source"), b"", b"short"])
@pytest.mark.parametrize("mechanism", ["rr-on-bins", "one-bit", "rr-with-prior", "discrete-laplace", "exponential"])
def test_without_randomness_nothing_is_released_and_nothing_charged_twice(
    failure: Exception | bytes, mechanism: str, party: LabelsParty, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = party.sealed_batch(label_table(300))
    source = Source(failure, 0)
    with monkeypatch.context() as patch:
        broken(patch, source)
        release = party.charge(batch, "1", mechanism=mechanism)
        for _ in range(2):
            with pytest.raises(Unavailable):
                party.services.pipeline.run(release)
        assert source.asked == 2
        assert party.state(release).state == "drawing"
        assert files_of(party, release) == []
    assert party.spent(batch) == "1"  # charged first, and not again
    assert party.services.pipeline.run(release)
    assert party.state(release).state == "published"
    assert party.spent(batch) == "1"


def test_a_source_that_fails_within_a_draw_leaves_none_of_it(
    party: LabelsParty, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second of two chunks of labels gets no key: what the first one drew is thrown away unseen."""
    batch = party.sealed_batch(label_table(140_000))
    release = party.charge(batch, "1", mechanism="one-bit")
    source = Source(OSError("no entropy"), 1)
    with monkeypatch.context() as patch:
        broken(patch, source)
        with pytest.raises(Unavailable):
            party.services.pipeline.run(release)
    assert source.asked == 2
    assert party.state(release).state == "drawing"
    assert files_of(party, release) == []
    assert party.services.pipeline.run(release)
    assert party.spent(batch) == "1"


def test_over_rest_a_release_without_randomness_waits_and_shows_nothing(
    party: LabelsParty, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = party.sealed_batch(label_table(300))
    party.client()
    publisher = party.client("features")
    party.services.worker.stop()

    def no_noise(_scale: object, _n: int) -> None:
        raise RandomnessUnavailable("The discrete Laplace sampler got no randomness, so nothing was drawn.")

    release = party.charge(batch, "1", mechanism="rr-on-bins", prior="estimate", prior_epsilon="0.5")
    with monkeypatch.context() as patch:
        patch.setattr(prior_module, "discrete_laplace", no_noise)
        with pytest.raises(Unavailable):
            party.services.pipeline.run(release)
    for part in ("manifest", "message", "files/prior.parquet"):
        assert publisher.get(f"/v1/releases/{release}/{part}").status_code in (404, 409)
    told = publisher.get(f"/v1/releases/{release}").json()
    assert told["state"] == "drawing"
    assert "manifest_sha256" not in {k for k, v in told.items() if v is not None}
    assert files_of(party, release) == []
    assert party.services.pipeline.run(release)
    assert publisher.get(f"/v1/releases/{release}/message").status_code == 200
    assert party.spent(batch) == "1"


@pytest.mark.parametrize("planted", ["noise", "channel"])
def test_a_release_of_unproved_epsilon_draws_nothing_and_stays_charged(
    planted: str, party: LabelsParty, monkeypatch: pytest.MonkeyPatch
) -> None:
    from opendp import measurements

    make, drawn = measurements.make_laplace, list[Any]()

    def smaller(*about: Any, scale: float) -> Any:
        return make(*about, scale=0.99 * scale)

    batch = party.sealed_batch(label_table(300))
    publisher = party.client("features")
    party.services.worker.stop()
    release = party.charge(batch, "1", prior="estimate", prior_epsilon="0.5")
    with monkeypatch.context() as patch:
        patch.setattr(engine, "sample", lambda *of: drawn.append(of))
        if planted == "noise":
            patch.setattr(measurements, "make_laplace", smaller)
        else:
            patch.setattr(RRChannel, "satisfies", lambda *_: False)
        with pytest.raises(EpsilonNotProved):
            party.services.pipeline.run(release)
    assert drawn == []
    told = publisher.get(f"/v1/releases/{release}").json()
    assert (told["state"], told["problem"]["code"]) == ("failed", "epsilon-not-proved")
    assert files_of(party, release) == []
    assert party.spent(batch) == "1"


def _nothing_comes_out(home: Path, told: Any) -> None:
    """In a process of its own: a release is charged, the kernel stops giving randomness, and nobody catches that."""
    with LabelsParty(home) as party:
        batch = party.sealed_batch(label_table(300))
        release = party.charge(batch, "1", prior="estimate", prior_epsilon="0.5")
        assert party.services.pipeline.worker.name  # drawn when a worker starts
        if not without_kernel_randomness():
            told.put("cannot be tried here")
            return
        # as the worker draws: in a thread that has not drawn before
        refusals = []
        for draw in (Keystream, lambda: discrete_laplace(WIDE, 3), lambda: party.services.pipeline.run(release)):
            with ThreadPoolExecutor(1) as pool:
                refusals.append(type(pool.submit(draw).exception()).__name__)
        told.put((refusals, party.state(release).state, files_of(party, release), party.spent(batch)))


@pytest.mark.processes
@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's randomness is cut off by a filter of Linux")
def test_without_kernel_randomness_draws_are_refused_and_the_process_lives(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    told = spawn.Queue()
    child = spawn.Process(target=_nothing_comes_out, args=(tmp_path / "home", told))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    found = told.get(timeout=5)
    if found == "cannot be tried here":
        pytest.skip(found)
    assert found == (["RandomnessUnavailable"] * 3, "drawing", [], "1")
