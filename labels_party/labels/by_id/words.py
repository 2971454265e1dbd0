"""Eight bytes at once inside compiled code, wherever they begin: numba's own loops go byte by byte; and words compared
without a branch. Imports numba."""

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
    """numba's, which takes the first argument away: its types do not say so."""
    return _intrinsic(function)


def _pointer(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    array = context.make_array(signature.args[0])(context, builder, args[0])
    return builder.bitcast(builder.gep(array.data, [args[1]]), WORD.as_pointer())


@intrinsic
def read_word(typing: Any, data: Any, at: Any) -> Any:
    """uint64: data[at : at + 8], lowest byte first. Whoever calls stays inside the array."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(_pointer(context, builder, signature, args), align=1)

    return types.uint64(data, types.int64), generate


@intrinsic
def write_word(typing: Any, data: Any, at: Any, word: Any) -> Any:
    """Inverse of `read_word`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[2], _pointer(context, builder, signature, args), align=1)
        return context.get_dummy_value()

    return types.void(data, types.int64, types.uint64), generate


@compiled()
def below(one: Any, other: Any) -> Any:
    """uint64: 1 where `one` is less than `other`, else 0, by arithmetic alone: in random data half of all branches are
    guessed wrong, which takes longer than all else (Warren 2012, section 2-12)."""
    return ((~one & other) | ((~one | other) & (one - other))) >> np.uint64(63)


@intrinsic
def turned(typing: Any, word: Any) -> Any:
    """The same bytes, the first one last."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bswap(args[0])

    return types.uint64(types.uint64), generate
