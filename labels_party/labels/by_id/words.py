"""Unaligned eight-byte words inside compiled code, since numba's own loops go byte by byte. Imports numba."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic as _intrinsic

from labels_party.mechanisms.compiled import compiled

WORD = ir.IntType(64)
Builder = TypeVar("Builder", bound=Callable[..., Any])


def intrinsic(function: Builder) -> Any:
    """Wrap numba's decorator, which removes the first argument without saying so in its types."""
    return _intrinsic(function)


def _pointer(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    array = context.make_array(signature.args[0])(context, builder, args[0])
    return builder.bitcast(builder.gep(array.data, [args[1]]), WORD.as_pointer())


@intrinsic
def read_word(typing: Any, data: Any, at: Any) -> Any:
    """Read uint64 data[at : at + 8], lowest byte first. The caller stays inside the array."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(_pointer(context, builder, signature, args), align=1)

    return types.uint64(data, types.int64), generate


@intrinsic
def write_word(typing: Any, data: Any, at: Any, word: Any) -> Any:
    """Write a word; inverse of `read_word`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[2], _pointer(context, builder, signature, args), align=1)
        return context.get_dummy_value()

    return types.void(data, types.int64, types.uint64), generate


@compiled()
def below(one: Any, other: Any) -> Any:
    """Return uint64 1 if `one` is less than `other`, else 0, by arithmetic alone (Warren 2012, section 2-12). In
    random data half of all branches are mispredicted, which costs more than the rest."""
    return ((~one & other) | ((~one | other) & (one - other))) >> np.uint64(63)


@intrinsic
def turned(typing: Any, word: Any) -> Any:
    """Reverse the bytes."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bswap(args[0])

    return types.uint64(types.uint64), generate
