"""One draw per label, by the kind of the channel: every kind has exactly one sampler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from label_dp.channels.base import Channel, UIntArray, smallest_unsigned
from label_dp.channels.exponential import ExponentialChannel
from label_dp.channels.knots import KnotsChannel
from label_dp.channels.laplace import LaplaceChannel
from label_dp.channels.one_bit import OneBitChannel
from label_dp.channels.rr import RRChannel
from label_dp.channels.staircase import StaircaseChannel
from label_dp.channels.subsets import SubsetChannel
from label_dp.channels.top_labels import TopLabelsChannel
from label_dp.errors import InvalidMechanism
from labels_party.mechanisms.alias import Aliased, AliasSampler, alias_sampler
from labels_party.mechanisms.entropy import Keystream, Uint64Source
from labels_party.mechanisms.one_bit import sample_one_bit
from labels_party.mechanisms.randomized_response import CHUNK, sample_rr
from labels_party.mechanisms.rr_with_prior import sample_top_labels

Index = npt.NDArray[np.int64]
SAMPLE_CHUNK = 1 << 18

# messages are drawn chunk by chunk; a table goes with its channel
_made: WeakKeyDictionary[Channel, AliasSampler] = WeakKeyDictionary()


def sample(channel: Channel, index: Index) -> UIntArray:
    """Draw one output per label position 0 … k − 1 of `index`, independently, exactly by the channel's weights:
    unsigned[n].

    Safe to call chunk by chunk: every call takes fresh randomness. Raises InvalidMechanism (a position outside the
    domain, an unknown kind) or RandomnessUnavailable.
    """
    if index.size and (int(index.min()) < 0 or int(index.max()) >= channel.k):
        raise InvalidMechanism("A label position lies outside the domain of the channel.")
    if type(channel) not in SAMPLERS:
        raise InvalidMechanism(f"No sampler for channels of kind '{channel.kind}'.")
    return SAMPLERS[type(channel)](channel, index)


def _sample_rr(channel: RRChannel, index: Index) -> UIntArray:
    stream = Keystream()
    table = cast("npt.NDArray[np.uint32]", channel.bins)
    out = np.empty(index.size, dtype=table.dtype)
    for start in range(0, index.size, SAMPLE_CHUNK):
        own = table[index[start : start + SAMPLE_CHUNK]]
        out[start : start + SAMPLE_CHUNK] = sample_rr(own, channel.d, channel.A, channel.B, stream)
    return cast(UIntArray, out)


def _sample_one_bit(channel: OneBitChannel, index: Index) -> UIntArray:
    return cast(UIntArray, sample_one_bit(index, channel, Keystream()))


def _sample_top_labels(channel: TopLabelsChannel, index: Index) -> UIntArray:
    return sample_top_labels(index, channel, Keystream())


def _sample_subsets(channel: SubsetChannel, index: Index) -> UIntArray:
    return sample_subsets(index, channel, Keystream())


def sample_subsets(index: Index, channel: SubsetChannel, stream: Uint64Source) -> UIntArray:
    """Draw unsigned[n] by one 64-bit word u each: the number of a step, which the label's position shifts.

    u < r·A gives one of the r first steps, A words each; then come those of B + 1 words and those of B. All three are
    computed for every word, and no read depends on a label. P = weight/2⁶⁴ exactly.
    """
    t, r, m = len(channel.blocks), channel.r, channel.m
    own, heavy = np.uint64(channel.A), np.uint64(channel.B + 1)
    first, second = np.uint64(r * channel.A), np.uint64(channel.rest * (channel.B + 1))
    out = np.empty(index.size, dtype=smallest_unsigned(m))
    for start in range(0, index.size, CHUNK):
        at = index[start : start + CHUNK]
        u = stream.uint64(at.size)
        beyond = u - first  # wraps for the first ones, which do not use it
        light = np.uint64(channel.rest) + (beyond - second) // np.uint64(channel.B)
        other = np.uint64(r) + np.where(beyond < second, beyond // heavy, light)
        slot = np.where(u < first, u // own, other)
        subset = at * t + channel.steps[slot.view(np.int64)]
        subset += m * (subset < 0)
        out[start : start + CHUNK] = subset
    return out


def _sample_alias(channel: Aliased, index: Index) -> UIntArray:
    sampler = _made.get(channel)
    if sampler is None:
        sampler = _made[channel] = alias_sampler(channel)
    return sampler(index, Keystream())


SAMPLERS: dict[type[Channel], Callable[[Any, Index], UIntArray]] = {
    RRChannel: _sample_rr,
    OneBitChannel: _sample_one_bit,
    KnotsChannel: _sample_alias,
    TopLabelsChannel: _sample_top_labels,
    SubsetChannel: _sample_subsets,
    LaplaceChannel: _sample_alias,
    StaircaseChannel: _sample_alias,
    ExponentialChannel: _sample_alias,
}
