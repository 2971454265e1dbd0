"""Random words drawn by threads and by forked and fresh processes, and how many of them came more than once."""

from __future__ import annotations

import ctypes
import errno
import multiprocessing
import os
import platform
import struct
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from label_dp.channels.rr import RRChannel
from label_dp.domain import Domain
from label_dp.privacy import Epsilon
from labels_party.mechanisms import sampling
from labels_party.mechanisms.entropy import LaplaceNoise, discrete_laplace
from labels_party.mechanisms.randomized_response import rr_weights

Words = npt.NDArray[np.int64]
LABELS = 1 << 12
WIDE = LaplaceNoise(1 << 50, Fraction(1))  # noise of that scale is as good as a word


def words_drawn(n: int) -> Words:
    """int64[n]: what n draws of 60 labels each by `sample` say: 60 bits a word, as both outputs are as likely."""
    A, B = rr_weights(Epsilon(0), 2)
    domain, ends = Domain.parse("0:1"), np.array([0.0, 1.0])
    channel = RRChannel(domain=domain, boundaries=np.arange(3), outputs=ends, A=A, B=B, bin_means=ends)
    bits = sampling.sample(channel, np.zeros(60 * n, np.int64)).reshape(n, 60).astype(np.int64)
    return np.asarray(bits @ (1 << np.arange(60)), np.int64)


def noise_drawn(n: int) -> Words:
    return discrete_laplace(WIDE, n)


def repeated(parts: Iterable[Words]) -> int:
    """How many words came before."""
    words = np.concatenate(list(parts))
    return int(words.size - np.unique(words).size)


def in_threads(draw: Callable[[int], Words], count: int, n: int) -> list[Words]:
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(draw, [n] * count))


def in_forks(draw: Callable[[int], Words], count: int, n: int) -> list[Words]:
    """Each child draws for itself right after the fork; the parent draws as well."""
    pipes = []
    for _ in range(count):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.write(writing, draw(n).tobytes())
                status = 0
            finally:
                os._exit(status)
        os.close(writing)
        pipes.append((child, reading))
    own, found = draw(n), []
    for child, reading in pipes:
        with os.fdopen(reading, "rb") as pipe:
            found.append(np.frombuffer(pipe.read(), np.int64))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert found[-1].size == n
    return [own, *found]


def in_fresh_processes(draw: Callable[[int], Words], count: int, n: int) -> list[Words]:
    with multiprocessing.get_context("spawn").Pool(count) as pool:
        answers: Any = pool.map(draw, [n] * count, chunksize=1)
    return list(answers)


def without_kernel_randomness() -> bool:
    """Have `getrandom` fail with EIO for this process from now on, by a seccomp filter; False where that cannot be."""
    number = {"x86_64": 318, "aarch64": 278}.get(platform.machine())
    if sys.platform != "linux" or number is None:
        return False
    # load the system call's number; if it is getrandom return EIO, otherwise allow
    rules = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x00050000 | errno.EIO), (0x06, 0, 0, 0x7FFF0000)]
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in rules))

    class Filter(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("rules", ctypes.c_void_p))

    libc, found = ctypes.CDLL(None), Filter(len(rules), ctypes.addressof(program))
    # no new privileges; then the filter, for all threads: seccomp(SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC)
    if libc.prctl(38, 1, 0, 0, 0) != 0 or libc.syscall(number - 1, 1, 1, ctypes.byref(found)) != 0:
        return False
    try:
        os.urandom(1)
    except OSError:
        return True
    return False
