"""A command names everything that is missing at once."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
import typer

from label_dp.cli.outline import commands_of


def command() -> Any:
    app = typer.Typer()

    @app.command()
    def bake(
        cake: Annotated[str, typer.Argument(metavar="CAKE")],
        flour: Annotated[str, typer.Option()],
        sugar: Annotated[list[int], typer.Option()],
        oven: Annotated[str, typer.Option()] = "gas",
    ) -> None:
        """Bake."""

    return commands_of(app)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "Missing arguments and options 'CAKE', '--flour', '--sugar'."),
        (["plum"], "Missing options '--flour', '--sugar'."),
        (["plum", "--oven", "wood"], "Missing options '--flour', '--sugar'."),
        (["plum", "--flour", "rye"], "Missing option '--sugar'."),
        (["--flour", "rye", "--sugar", "1"], "Missing argument 'CAKE'."),
    ],
)
def test_everything_that_is_missing_is_named_at_once(words: list[str], said: str) -> None:
    with pytest.raises(typer.BadParameter) as refused:
        command().main(words, standalone_mode=False)
    assert refused.value.format_message().rstrip() == said


def test_a_value_of_the_wrong_kind_is_named_alone() -> None:
    with pytest.raises(typer.BadParameter) as refused:
        command().main(["--sugar", "much"], standalone_mode=False)
    assert "flour" not in refused.value.format_message()
