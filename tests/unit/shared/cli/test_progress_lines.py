"""Progress into a pipe: plain lines now and then, none of a short command."""

from __future__ import annotations

import pytest

from label_dp.cli import output as cli


def test_a_line_comes_every_so_often(capsys: pytest.CaptureFixture[str]) -> None:
    times = iter([100.0, 101.0, 119.0, 120.5, 120.5, 121.0, 139.0, 141.0, 141.0])  # told again where a line is written
    report = cli._lines("train", lambda: next(times))
    for share in (0.01, 0.1, 0.2, 0.3, 0.35, 0.4):
        report(f"fold {share}", share)
    written = capsys.readouterr()
    assert written.out == ""
    assert written.err == "train: fold 0.2, 20%\ntrain: fold 0.4, 40%\n"


def test_it_is_what_a_pipe_gets_and_json_gets_none(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "LINE_EVERY", 0.0)
    for quiet, lines in ((False, "train: a part, 50%\n"), (True, "")):
        with cli.progress("train", quiet) as report:
            report("a part", 0.5)
        assert capsys.readouterr().err == lines
