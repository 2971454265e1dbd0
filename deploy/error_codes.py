"""Codes of errors as Markdown, a row each, from the classes that declare them.

.venv/bin/python -m deploy.error_codes > deploy/guides/errors.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import features_party.api.app
import labels_party.api.app
import labels_party.work.restored
from label_dp.errors import LabelDPError
from label_dp.problems import status_of_kind

# their kinds of errors are there once they are imported
PARTIES = (features_party.api.app, labels_party.api.app, labels_party.work.restored)
ROOMS = ("label_dp", "labels_party", "features_party")
# of the web framework: no class of ours
OTHERS = {"headers-too-large": (431, "Headers too large"), "method-not-allowed": (405, "Method not allowed")}
INTRODUCTION = """# Codes of errors

An error over REST is a problem body (RFC 9457): `code` never changes, `detail` is the sentence for people. A command
prints the detail and ends with the exit code: 2 for what was given wrongly, 1 for everything else.
`.venv/bin/python -m deploy.error_codes` prints this page from the classes that declare the codes.

"""


def page() -> str:
    """Render `deploy/guides/errors.md`."""
    rows = {
        kind.code: (str(status_of_kind(kind)), str(kind.exit_code), kind.title)
        for kind in kinds()
        if "code" in vars(kind)
    }
    rows |= {code: (str(status), "", title) for code, (status, title) in OTHERS.items()}
    heads = ("code", "HTTP", "exit", "what it says")
    lines = [heads, ("---",) * len(heads), *((f"`{code}`", *rows[code]) for code in sorted(rows))]
    return INTRODUCTION + "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def kinds(base: type[LabelDPError] = LabelDPError) -> Iterator[type[LabelDPError]]:
    """Yield an error class and all below it of this project."""
    yield base
    for kind in base.__subclasses__():
        if kind.__module__.partition(".")[0] in ROOMS:
            yield from kinds(kind)


if __name__ == "__main__":
    sys.stdout.write(page())
