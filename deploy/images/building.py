"""Builds and their contents: each step returns what was seen, in a few words, or raises Failed."""

from __future__ import annotations

import json
import shutil
import time

from deploy.images.engine import Failed
from deploy.images.rig import Rig

IMAGES = ("label-dp/labels-party", "label-dp/features-party", "label-dp/demo")
LARGEST = 900_000_000  # bytes of a party's image
REBUILT_SECONDS = 30.0  # after an edit of a source
COPIED = ("pyproject.toml", "README.md", "LICENSE", "shared", "labels_party", "features_party", "deploy")
# what a party's image must not have: an installer, tests, and the other one's heaviest libraries
ABSENT = {"label-dp/labels-party": "pip xgboost scipy onnx", "label-dp/features-party": "pip opendp numba llvmlite"}


def build(rig: Rig) -> str:
    """build all images."""
    rig.engine.compose("build", *(["--no-cache"] if rig.cold else []), profile="demo")
    sizes = {name: int(rig.engine.docker("image", "inspect", "--format", "{{.Size}}", name)) for name in IMAGES}
    for name in ABSENT:
        if sizes[name] > LARGEST:
            raise Failed(f"{name} has {sizes[name] / 1e6:.0f} MB, more than {LARGEST / 1e6:.0f} MB")
    how = "from nothing" if rig.cold else "from what is cached"
    return f"{how}: " + ", ".join(f"{name} {size / 1e6:.0f} MB" for name, size in sizes.items())


def look_inside(rig: Rig) -> str:
    """what an image has and is."""
    for name, absent in ABSENT.items():
        config = json.loads(rig.engine.docker("image", "inspect", name))[0]["Config"]
        if config["User"] != "10001:10001" or config["Labels"].get("org.opencontainers.image.licenses") != "Apache-2.0":
            raise Failed(f"{name} runs as {config['User']!r}, with the labels {config['Labels']}")
        find = " ".join(f"-o -path '*-packages/{package}'" for package in absent.split())
        tests = "-path '*-packages/*' -a \\( -name tests -o -name test \\)"
        there = f"find / -xdev \\( {tests} {find} -o -name 'pip3*' \\) -print"
        found = rig.engine.docker("run", "--rm", "--network=none", name, "sh", "-c", f"{there} 2>/dev/null; true")
        if found.strip():
            raise Failed(f"{name} has {found.split()[:5]}")
    return "numeric user, licence; no installer, no tests, nothing of the other party's heaviest libraries"


def rebuilt(rig: Rig) -> str:
    """the image again after an edit of a source."""
    context = rig.folder / "context"
    context.mkdir()
    for name in COPIED:
        source = rig.engine.root / name
        copy = shutil.copytree if source.is_dir() else shutil.copy2
        copy(source, context / name)
    with (context / "shared/label_dp/errors.py").open("a", encoding="utf-8") as file:
        file.write("\n# edited\n")
    argument = rig.engine.environment.get("PYTHON_IMAGE")
    arguments = ["--build-arg", f"PYTHON_IMAGE={argument}"] if argument else []
    start = time.monotonic()
    rig.engine.docker("build", "-q", *arguments, "-f", str(context / "deploy/labels_party.Dockerfile"), str(context))
    took = time.monotonic() - start
    if took > REBUILT_SECONDS:
        raise Failed(f"{took:.0f} s, more than {REBUILT_SECONDS:g} s")
    return f"{took:.0f} s"
