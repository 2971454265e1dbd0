"""What cannot be undone is asked for on a terminal, and there only."""

from __future__ import annotations

import io

import pytest

from label_dp.cli.output import confirm


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def ask(monkeypatch: pytest.MonkeyPatch, stdin: io.StringIO, sure: bool = False) -> None:
    monkeypatch.setattr("sys.stdin", stdin)
    confirm("The labels are deleted.", sure)


@pytest.mark.parametrize("answer", ["y\n", "Y\n", "yes\n"])
def test_yes_goes_on(answer: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    ask(monkeypatch, Terminal(answer))
    said = capsys.readouterr()
    assert (said.out, "The labels are deleted. This cannot be undone." in said.err) == ("", True)


@pytest.mark.parametrize("answer", ["", "\n", "n\n", "what\n"])
def test_anything_else_stops(answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit) as stopped:
        ask(monkeypatch, Terminal(answer))
    assert stopped.value.code == 1


def test_programs_and_the_sure_are_not_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ask(monkeypatch, io.StringIO("n\n"))
    ask(monkeypatch, Terminal("n\n"), sure=True)
    assert capsys.readouterr().err == ""
