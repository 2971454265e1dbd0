"""Verify what the parties sign, with nothing but the standard library and `cryptography`.

    python3 verify_standalone message MESSAGE --key signing.pub [--audience NAME]
    python3 verify_standalone rehearsal MESSAGE --key rehearsal.pub [--audience NAME]
    python3 verify_standalone answer ANSWER.json --key signing.pub [--audience NAME]
    python3 verify_standalone report PAGE.html --key signing.pub
    python3 verify_standalone audit EXPORT --key signing.pub [--against EXPORT --against-key signing.pub]

`verify_standalone` is this folder, copied to anywhere. MESSAGE is NAME.parquet with NAME.parquet.dsse.json beside it,
or a folder with manifest.dsse.json. Exit code 0: it verifies; 1: refused, with the reason; 2: wrong usage or an
unreadable file. The folder is written from the formats' description, not from the project's code, and shares none with
it, so that one can be checked against the other. It parses no Parquet: which ids and values the rows hold is not
checked here, only that not a bit of them was changed.
"""

from __future__ import annotations

import argparse
import io
import sys
from pathlib import Path

from .answer import verify_answer
from .audit import open_export
from .comparison import compare
from .envelope import load_key
from .message import verify_message
from .refusal import MISSHAPEN, RefusedError, UnusableError
from .report import verify_report

PROGRAM = Path(__file__).parent.name


def plain(text: str) -> str:
    """Text that the other side wrote, without anything that moves a terminal's cursor."""
    return "".join(c if c.isprintable() else f"[U+{ord(c):04X}]" for c in text)


def main() -> int:
    """Runs the command line and says what was checked; the exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # names that a terminal cannot show must not undo a verdict
    parser = argparse.ArgumentParser(prog=PROGRAM, description="Verify what the parties of a label-DP service sign.")
    kinds = parser.add_subparsers(dest="kind", required=True)
    whats = {
        "message": "NAME.parquet or a message's folder",
        "rehearsal": "a message with made-up labels, which `features-party rehearse` wrote",
        "answer": "the signed document of a calibration, a median or another answer, or of predictions, one a line",
        "report": "a signed page, its signature beside it",
        "audit": "a signed audit export",
    }
    for kind, what in whats.items():
        command = kinds.add_parser(kind, help=what)
        command.add_argument("path", type=Path, metavar=kind.upper(), help=what)
        command.add_argument("--key", type=Path, required=True, help="the signer's public key, keys/signing.pub")
        if kind not in ("report", "audit"):
            command.add_argument("--audience", help="refuse what is not meant for this name")
        if kind == "audit":
            command.add_argument("--against", type=Path, help="another export, of this party or of the other one")
            command.add_argument("--against-key", type=Path, help="the public key of that one; default --key")
    arguments = parser.parse_args()
    try:
        key, key_id = load_key(arguments.key)
        if arguments.kind in ("message", "rehearsal"):
            rehearsal = arguments.kind == "rehearsal"
            said = verify_message(arguments.path, key, key_id, arguments.audience, rehearsal=rehearsal)
        elif arguments.kind == "answer":
            said = verify_answer(arguments.path, key, key_id, arguments.audience)
        elif arguments.kind == "report":
            said = verify_report(arguments.path, key, key_id)
        else:
            found, said = open_export(arguments.path, key, key_id)
            if arguments.against is not None:
                other, _ = open_export(arguments.against, *load_key(arguments.against_key or arguments.key))
                said += compare(found, other)
    except RefusedError as why:
        sys.stderr.write(f"REFUSED: {plain(str(why))}\n")
        return 1
    except UnusableError as why:
        sys.stderr.write(f"error: {plain(str(why))}\n")
        return 2
    except MISSHAPEN:
        # a validly signed document of another shape; which part is of no use to anybody but its signer
        sys.stderr.write("REFUSED: a member of the signed document is missing or of the wrong kind\n")
        return 1
    sys.stdout.write("".join(f"  {plain(line)}\n" for line in said) + "VERIFIED\n")
    return 0
