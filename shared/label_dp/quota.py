"""Processors and memory that this process may use: the quota of its control group, or the machine where that is less.

A container sees every processor of its machine. One that starts a thread for each is stopped by its quota again and
again, and one that takes half of the machine's memory is killed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")
OWN_GROUP = Path("/proc/self/cgroup")
# version 1 of control groups, where a container sees its own group as the topmost one
QUOTA_1, PERIOD_1, MEMORY_1 = "cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us", "memory/memory.limit_in_bytes"


def processors(groups: Path = GROUPS, own: Path = OWN_GROUP) -> int:
    """How many processors this process may keep busy, at least 1; a part of one does not count."""
    found = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limits = [words for folder in _folders(groups, own) if len(words := _numbers(folder / "cpu.max")) == 2]
    limits.append(_numbers(groups / QUOTA_1) + _numbers(groups / PERIOD_1))
    return max(min([found, *(quota // period for quota, period in (pair for pair in limits if len(pair) == 2))]), 1)


def memory_bytes(groups: Path = GROUPS, own: Path = OWN_GROUP) -> int:
    """The memory that this process may use, shared with whatever else is in its control group."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    files = [*(folder / "memory.max" for folder in _folders(groups, own)), groups / MEMORY_1]
    return min([physical, *(limit for file in files for limit in _numbers(file))])


def _folders(groups: Path, own: Path) -> Iterator[Path]:
    """Our control group of version 2 and those above it."""
    lines = own.read_text(encoding="utf-8").splitlines() if own.is_file() else []
    group = groups / next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), "")
    for folder in (group, *group.parents):
        yield folder
        if folder == groups:
            return


def _numbers(file: Path) -> list[int]:
    """The positive numbers of a file; none where it is not there, or says "max" or -1: no limit."""
    try:
        words = file.read_text(encoding="ascii").split()
    except OSError:
        return []
    return [int(word) for word in words if word.isdecimal() and int(word) > 0]
