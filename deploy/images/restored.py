"""A backup, a loss and a restore of the labels party, in containers of their own."""

from __future__ import annotations

import secrets

from deploy.images.engine import PROJECT
from deploy.images.history import features_export, one_history
from deploy.images.rig import Rig, same_releases

TAKE = """umask 077; cat > /tmp/passphrase
labels-party backup --out /var/lib/labels-party/taken --passphrase-file /tmp/passphrase --force > /dev/null"""
BRING_BACK = """umask 077; cat > /tmp/passphrase
labels-party restore /backup/taken --passphrase-file /tmp/passphrase --against /backup/features.json > /dev/null"""


def restored(rig: Rig) -> str:
    """a backup while the service runs, the loss of home and database, and a restore."""
    if " backup " not in rig.engine.compose("exec", "-T", "labels-party", "labels-party", "--help"):
        return "not tried: this version has no command `labels-party backup`"
    passphrase, before = secrets.token_hex(16).encode(), rig.releases()
    folder = rig.folder / "backup"
    folder.mkdir(mode=0o755)
    rig.engine.compose("exec", "-T", "labels-party", "sh", "-ec", TAKE, given=passphrase)
    rig.engine.compose("cp", "labels-party:/var/lib/labels-party/taken", str(folder / "taken"))
    (folder / "features.json").write_text(features_export(rig), encoding="utf-8")
    for file in folder.iterdir():
        file.chmod(0o444)
    users = ("labels-party", "labels-db", "labels-mail", "demo-labels-keys")
    rig.engine.compose("rm", "--stop", "--force", *users, profile="demo")
    rig.engine.docker("volume", "rm", f"{PROJECT}_labels-home", f"{PROJECT}_labels-db")
    rig.engine.compose("up", "--detach", "--wait", "labels-db")
    words = ("run", "--rm", "--no-deps", "-T", "--volume", f"{folder}:/backup:ro", "labels-party", "sh", "-ec")
    rig.engine.compose(*words, BRING_BACK, given=passphrase)
    rig.engine.compose("up", "--detach")
    rig.ready()
    same_releases(before, rig.releases())
    return f"{(folder / 'taken').stat().st_size / 1e6:.1f} MB; the same {len(before)} releases; {one_history(rig)}"
