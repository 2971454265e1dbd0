"""Hints for extras, from the requirements of the installed distribution, so that a hint only names existing
packages."""

from __future__ import annotations

import re
import shlex
from importlib.metadata import PackageNotFoundError, requires

DISTRIBUTION = "label-dp-service"
OF_EXTRA = re.compile(r"(?P<name>[^;]+?)\s*;\s*extra == ['\"](?P<extra>[\w-]+)['\"]")


def pip_install(extra: str) -> str:
    """Format `pip install 'onnx>=1.17'` for the extra `onnx`."""
    try:
        requirements = requires(DISTRIBUTION) or []
    except PackageNotFoundError:  # a checkout on the path, which was never installed
        return f"pip install '.[{extra}]' in the project's folder"
    matches = [
        match for match in map(OF_EXTRA.fullmatch, requirements) if match is not None and match["extra"] == extra
    ]
    return " ".join(["pip install", *(shlex.quote(match["name"]) for match in matches)])
