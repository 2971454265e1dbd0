"""Tests that start processes carry the marker `processes`, and belong to `make check`; the others cannot start one."""

from __future__ import annotations

import multiprocessing.process
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
OURS = tuple(str(ROOT / room) for room in ("tests", "deploy", "shared", "labels_party", "features_party"))
STARTERS = (Path(subprocess.__file__), Path(multiprocessing.process.__file__).parent, Path(__file__))


class Unmarked(AssertionError):
    def __init__(self) -> None:
        super().__init__("A test that starts a process carries @pytest.mark.processes, so that `make check` runs it.")


class Gate:
    def __init__(self) -> None:
        self.open = True

    @contextmanager
    def kept(self, *, open: bool) -> Iterator[None]:
        before, self.open = self.open, open
        try:
            yield
        finally:
            self.open = before

    def _pass(self) -> None:
        if self.open:
            return
        frame: Any = sys._getframe(2)
        while frame is not None and frame.f_code.co_filename.startswith(tuple(map(str, STARTERS))):
            frame = frame.f_back
        # libraries may ask the linker, for example, when they are first imported
        if frame is not None and frame.f_code.co_filename.startswith(OURS):
            raise Unmarked

    @contextmanager
    def watched(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for owner, name in (
                (subprocess.Popen, "__init__"),
                (multiprocessing.process.BaseProcess, "start"),
                (os, "fork"),
            ):
                patch.setattr(owner, name, self._gated(getattr(owner, name)))
            yield

    def _gated(self, start: Callable[..., Any]) -> Callable[..., Any]:
        def gated(*arguments: Any, **options: Any) -> Any:
            self._pass()
            return start(*arguments, **options)

        return gated


gate = Gate()
