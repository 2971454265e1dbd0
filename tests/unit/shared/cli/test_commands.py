"""Commands made of schemas: what a person writes becomes what was asked for, or a sentence that names the option."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
import typer
from pydantic import Field
from typer.testing import CliRunner

from label_dp.cli.commands import command
from label_dp.cli.panels import EXPERT_PANEL, Panel
from label_dp.errors import InvalidInput
from label_dp.schemas.base import EXPERT, Ask, Word
from label_dp.schemas.numbers import Decimalish

DIGITS = "in plain digits: no plus sign, no leading zeros, no blanks or separators"


def _upper(text: str) -> str:
    if not text.islower():
        raise ValueError("small letters")
    return text.upper()


class Cake(Ask):
    weight: Decimalish = Field(description="Of all of it.")
    layers: int = Field(default=3, ge=1, le=9, description="From `weight`.")
    kind: Literal["plain", "rich"] = Field(default="plain", description="Which.")
    spices: Annotated[list[str], Word("--spice", "one by one", read=_upper)] = Field(default=[], description="What.")
    burnt: Annotated[bool, EXPERT] = Field(default=False, description="Too long.")


class Plate(Ask):
    size: str = Field(description="Of it.")
    gold: bool = Field(default=False, description="Of gold.")
    marks: list[int] = Field(default=[], description="On it.")


def bake(*words: str) -> Any:
    app = typer.Typer(pretty_exceptions_enable=False)
    found: list[Any] = []

    @command(app)
    def made(
        *,
        cake: Cake,
        plate: Annotated[Plate | None, Panel("The plate")],
        oven: Annotated[str, typer.Option(help="Which.")] = "gas",
    ) -> None:
        """Bake."""
        found.extend((cake, plate, oven))

    result = CliRunner().invoke(app, list(words))
    if isinstance(result.exception, InvalidInput):
        raise result.exception
    return found if found else result


def test_options_become_what_was_asked_for() -> None:
    assert bake("--weight", "0.50") == [Cake(weight="0.50"), None, "gas"]
    words = [
        "--weight",
        "1",
        "--layers",
        "9",
        "--kind",
        "rich",
        "--spice",
        "ginger",
        "--spice",
        "salt",
        "--burnt",
        "--oven",
        "wood",
    ]
    assert bake(*words, "--size", "9", "--marks", "3") == [
        Cake(weight="1", layers=9, kind="rich", spices=["GINGER", "SALT"], burnt=True),
        Plate(size="9", marks=[3]),
        "wood",
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--layers", "10"), f"--layers takes a whole number from 1 to 9, {DIGITS}."),
        (("--layers", "1_0"), f"--layers takes a whole number from 1 to 9, {DIGITS}."),
        (("--kind", "new"), "--kind must be 'plain' or 'rich'."),
        (("--spice", "GINGER"), "--spice takes small letters."),
        (("--gold",), "--size is missing."),
        (("--marks", "+1"), f"--marks takes a whole number, {DIGITS}."),
    ],
)
def test_what_the_schema_refuses_names_the_option(words: tuple[str, ...], said: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        bake("--weight", "1", *words)
    assert refused.value.detail == said


def test_what_is_needed_is_said_by_the_command() -> None:
    result = bake("--layers", "2")
    assert result.exit_code == 2
    assert "Missing option '--weight'" in result.output


def test_help_has_everyday_options_first_and_experts_last() -> None:
    out = bake("--help").output
    panels = [out.index(title) for title in ("─ Options ─", "─ The plate ─", f"─ {EXPERT_PANEL} ─")]
    assert panels == sorted(panels)
    for option, panel in (("--weight", 0), ("--oven", 0), ("--size", 1), ("--burnt", 2)):
        after = [start for start in panels if start < out.index(option)]
        assert len(after) == panel + 1, option
    assert "From --weight." in out
    assert "[default: 3]" in out
    assert "plain|rich" in out
    assert "What; repeatable." in out
