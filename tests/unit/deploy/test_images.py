"""What a play of `make images` comes to without an engine: steps in order, the table, its place, amounts of memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.images.engine import ContainerEngine, Failed
from tests.images.__main__ import BEGIN, END, keep, play, table
from tests.images.measured import mebibytes
from tests.images.rig import Rig, same_releases
from tests.images.steps import STEPS


def held(_rig: Rig) -> str:
    """one."""
    return "a | b"


def broken(_rig: Rig) -> str:
    """two."""
    raise Failed("it broke\nin two lines")


def rig(folder: Path) -> Rig:
    return Rig(ContainerEngine(folder), 10, folder)


def test_steps_after_a_failure_are_not_tried(tmp_path: Path) -> None:
    told: list[str] = []
    results = play(rig(tmp_path), [held, broken, held], told.append)
    assert [row["held"] for row in results] == [True, False, None]
    assert told == ["one", "two"]
    lines = table(results).splitlines()
    assert lines[2:] == [
        "| one | 0 | yes | a \\| b |",
        "| two | 0 | **no** | it broke in two lines |",
        "| one |  | not tried |  |",
    ]


def test_the_table_takes_the_place_of_the_last_one(tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", encoding="utf-8")
    keep(page, "| new |")
    keep(page, "| newer |")
    assert page.read_text(encoding="utf-8") == f"before\n{BEGIN}\n\n| newer |\n\n{END}\nafter\n"
    page.write_text("no place\n", encoding="utf-8")
    with pytest.raises(Failed, match="has no lines"):
        keep(page, "| new |")


def test_deploy_readme_has_a_place_for_the_table_with_every_step() -> None:
    text = (Path(__file__).parents[3] / "deploy" / "README.md").read_text(encoding="utf-8")
    kept = text.partition(BEGIN)[2].partition(END)[0]
    named = {line.split(" | ")[0].removeprefix("| ") for line in kept.strip().splitlines()[2:]}
    assert named <= {(step.__doc__ or "").rstrip(".") for step in STEPS}
    assert len(named) >= 15


@pytest.mark.parametrize(("written", "amount"), [("127.5MiB", 127.5), (" 1GiB ", 1024), ("0B", 0), ("512KiB", 0.5)])
def test_an_amount_of_memory_is_read(written: str, amount: float) -> None:
    assert mebibytes(written) == amount


def test_what_is_no_amount_is_refused() -> None:
    with pytest.raises(Failed, match="'many'"):
        mebibytes("many")


def test_two_parties_must_tell_the_same_and_something() -> None:
    same_releases([{"id": "r"}], [{"id": "r"}])
    for first, second in (([], []), ([{"id": "r"}], [])):
        with pytest.raises(Failed, match="different releases"):
            same_releases(first, second)


def test_passwords_of_a_play_are_its_own(tmp_path: Path) -> None:
    made = rig(tmp_path)
    assert made.engine.variables()["SECRETS"] == str(tmp_path / "secrets")
