"""Alias tables: their columns add up to the weights, words at both ends of every share, the same work for each draw."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

from label_dp.channels.base import N
from label_dp.channels.noise import NoiseChannel
from label_dp.domain import Domain
from label_dp.privacy import Epsilon
from labels_party.mechanisms import alias, sampling
from labels_party.mechanisms.alias import AliasSampler, UInt64Array, alias_sampler, alias_table
from labels_party.mechanisms.catalogue import MECHANISMS
from labels_party.mechanisms.entropy import Keystream
from tests.support.exact_matrix import LINEAR_PROGRAMS, drawn
from tests.support.solved_once import DESIGNS

UNEVEN = Domain.from_values([0, 1, 3])
CASES: list[tuple[str, dict[str, Any]]] = [
    *((name, {"unclipped": wide}) for name in ("laplace", "staircase") for wide in (False, True)),
    *((f"discrete-{name}", {"unclipped": wide}) for name in ("laplace", "staircase") for wide in (False, True)),
    *(("exponential", {"tight": tight}) for tight in (False, True)),
    ("unbiased", {}),
    ("balanced", {}),
]


def design(name: str, domain: str | Domain, epsilon: str, options: dict[str, Any] | None = None) -> Any:
    parsed = Domain.parse(domain) if isinstance(domain, str) else domain
    prior = np.exp(-np.arange(parsed.k) / (1 + parsed.k / 4))
    make = DESIGNS[name] if name in LINEAR_PROGRAMS else MECHANISMS[name].design
    return make(parsed, prior / prior.sum(), Epsilon.parse(epsilon), "squared", options or {})


def added_up(entries: UInt64Array, bits: int, m: int) -> list[int]:
    """How many of all words give each output; in whole numbers of Python. Fails where a column has no output."""
    capacity, total = N >> bits, [0] * (1 << bits)
    for column, entry in enumerate(entries.tolist()):
        threshold, other = entry >> bits, entry & ((1 << bits) - 1)
        assert threshold < capacity
        total[column] += threshold
        total[other] += capacity - threshold
    assert total[m:] == [0] * ((1 << bits) - m)
    return total[:m]


def weights_of(channel: Any) -> list[list[int]]:
    """The rows that are drawn from: of noise the weights of −L … L, rebuilt from those of 0 … L."""
    if isinstance(channel, NoiseChannel):
        w = channel.weights.tolist()
        return [[w[abs(t)] for t in range(1 - len(w), len(w))]]
    return [list(row) for row in channel.weights.tolist()]


@pytest.mark.parametrize("epsilon", ["0.05", "1", "12"])
@pytest.mark.parametrize(("name", "options"), CASES)
def test_the_columns_of_every_channel_add_up_to_its_weights(name: str, options: dict[str, Any], epsilon: str) -> None:
    least = "0:1"
    if name in LINEAR_PROGRAMS:  # which are one bit for two labels, or a small ε
        least, epsilon = "0:5", epsilon.replace("0.05", "2")
    for domain in (least, "0:60") if epsilon != "1" else (least, "0:31", "0:32", "0:300"):
        channel = design(name, domain, epsilon, options)
        made = alias_sampler(channel)
        rows = weights_of(channel)
        for row, entries in zip(rows, made.entries, strict=True):
            assert sum(row) == N
            assert added_up(entries, made.bits, len(row)) == row


def odd_rows() -> list[list[int]]:
    rng = np.random.default_rng(0)
    rows = [[N - 1, 1], [1, N - 1], [N // 2] * 2, [1, 1, N - 2], [N - 2, 1, 1], [1] * 99 + [N - 99], [N >> 6] * 64]
    rows += [[(N >> 6) + 1, (N >> 6) - 1] * 32, [(N >> 6) - 1] * 63 + [(N >> 6) + 63], [N - 3 * 2**62, *[2**62] * 3]]
    rows += [[2**i for i in range(64)] + [1], [1, *[2**i for i in reversed(range(64))]]]
    for m in rng.integers(2, 300, 60).tolist():
        shape = rng.gamma(rng.choice([0.01, 0.3, 5.0]), size=m)
        row = [1 + int(x) for x in (shape / shape.sum() * (N >> 1)).tolist()]
        row[rng.integers(m)] += N - sum(row)
        rows.append(row)
    return rows


def test_so_do_those_of_rows_that_are_hard_to_share_out() -> None:
    for row in odd_rows():
        entries, bits = alias_table(np.array([row], dtype=np.uint64))
        assert bits == (len(row) - 1).bit_length()
        assert added_up(entries[0], bits, len(row)) == row


def test_control_a_word_more_or_another_alias_does_not_add_up() -> None:
    row = weights_of(design("discrete-laplace", "0:20", "1"))[0]
    (right,), bits = alias_table(np.array([row], dtype=np.uint64))
    column = int(np.flatnonzero(right & np.uint64((1 << bits) - 1) != np.arange(right.size))[3])
    for change in (np.uint64(1 << bits), np.uint64(1)):
        wrong = right.copy()
        wrong[column] ^= change
        assert added_up(wrong, bits, right.size)[: len(row)] != row


def both_ends(made: AliasSampler, row: int) -> tuple[list[int], list[int]]:
    """The first and the last word of every column and of both its parts, and what each draws."""
    capacity, words, want = N >> made.bits, list[int](), list[int]()
    for column, entry in enumerate(made.entries[row].tolist()):
        threshold, other = entry >> made.bits, entry & ((1 << made.bits) - 1)
        lower = sorted({0, threshold - 1} - {-1}) if threshold else []
        words += [column * capacity + word for word in [*lower, threshold, capacity - 1]]
        want += [*[column] * len(lower), other, other]
    return words, want


@pytest.mark.parametrize(("name", "options"), CASES)
def test_words_at_both_ends_of_every_share_give_its_output(name: str, options: dict[str, Any]) -> None:
    channel = design(name, "0:5", "2.5", options)
    made = alias_sampler(channel)
    assert made.chance is None  # every label of 0:5 is a lattice point or a knot
    for label, point in list(enumerate(made.base.tolist()))[:: 1 if channel.m < 100 else 5]:
        words, want = both_ends(made, 0 if isinstance(channel, NoiseChannel) else point)
        if isinstance(channel, NoiseChannel):
            noise = np.array(want) - (channel.weights.size - 1)
            want = (np.clip(point + noise, -channel.reach, channel.cells + channel.reach) + channel.reach).tolist()
        assert np.concatenate([drawn(channel, [label] * len(w), w) for w in parts(words)]).tolist() == want


def parts(words: list[int]) -> list[list[int]]:
    return [words[at : at + alias.CHUNK] for at in range(0, len(words), alias.CHUNK)]


@pytest.mark.parametrize(("name", "domain"), [("laplace", UNEVEN), ("exponential", UNEVEN), ("unbiased", "0:300")])
def test_labels_between_points_are_rounded_by_a_word_of_their_own(name: str, domain: str | Domain) -> None:
    channel = design(name, domain, "1")
    made = alias_sampler(channel)
    assert made.chance is not None
    label = int(np.flatnonzero(made.chance)[0])
    chance, below = int(made.chance[label]), int(made.base[label])
    words = [N // 100 * i for i in range(100)]
    # labels on the points themselves draw the same with the same words
    exact = AliasSampler(made.m, np.array([below, below + 1]), None, made.entries, made.bits, made.shift)
    low, high = (exact(np.full(100, point), Scripted(words)).tolist() for point in (0, 1))
    assert low != high
    for first, want in ((0, high), (chance - 1, high), (chance, low), (N - 1, low)):
        assert drawn(channel, [label] * 100, [first] * 100, words).tolist() == want


class Scripted:
    """Words from a list, and how many were asked for at a time."""

    def __init__(self, words: list[int]) -> None:
        self.words, self.asked = np.array(words, dtype=np.uint64), list[int]()

    def uint64(self, n: int) -> UInt64Array:
        self.asked.append(n)
        taken, self.words = self.words[:n].copy(), self.words[n:]
        return taken


def test_as_many_words_are_drawn_whatever_the_labels_and_the_words_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alias, "CHUNK", 8)
    for name, domain, each in (("discrete-laplace", "0:12", 1), ("exponential", "0:12", 1), ("laplace", UNEVEN, 2)):
        channel = design(name, domain, "1")
        made, rng = alias_sampler(channel), np.random.default_rng(3)
        for index in (np.zeros(20, np.int64), np.full(20, channel.k - 1), rng.integers(0, channel.k, 20)):
            for words in ([0] * 40, [N - 1] * 40, rng.integers(0, N, 40, dtype=np.uint64).tolist()):
                source = Scripted(words)
                made(index, source)
                assert source.asked == [n for n in (8, 8, 4) for _ in range(each)]


def test_the_same_words_draw_the_same_outputs_in_chunks_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    channel, rng = design("discrete-staircase", "0:400", "1", {"unclipped": True}), np.random.default_rng(4)
    index, words = rng.integers(0, 401, 5000), rng.integers(0, N, 5000, dtype=np.uint64).tolist()
    made = alias_sampler(channel)
    whole = made(index, Scripted(words))
    assert whole.dtype == np.uint16
    for chunk in (1, 7, 4999):
        monkeypatch.setattr(alias, "CHUNK", chunk)
        assert np.array_equal(made(index, Scripted(words)), whole)
    assert made(index[:0], Keystream()).size == 0


def test_a_table_is_made_once_for_a_channel_and_goes_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[Any]()

    def counted(channel: Any) -> AliasSampler:
        found = alias_sampler(channel)
        made.append(weakref.ref(found))
        return found

    monkeypatch.setattr(sampling, "alias_sampler", counted)
    channel = design("discrete-laplace", "0:12", "1")
    for _ in range(3):
        sampling.sample(channel, np.arange(13))
    assert len(made) == 1
    assert made[0]() is not None
    del channel
    gc.collect()
    assert made[0]() is None
