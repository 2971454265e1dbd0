"""A person in front of Chromium: signs in, opens pages, and fails where the console or axe-core complains."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

WIDE, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
GRAVE = ("serious", "critical")
PICTURES = "LABEL_DP_PICTURES"  # a folder: then every page that is looked at leaves its picture there


def browser_path() -> str:
    """Chromium as the machine has it; nothing is downloaded. Where it is missing, CI fails and others skip."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        if os.environ.get("CI") == "true":
            raise AssertionError("Chromium is missing; install it: apt-get install -y chromium")
        pytest.skip("there is no Chromium on the path: apt-get install -y chromium")
    return found


@contextmanager
def chromium() -> Iterator[Any]:
    path = browser_path()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # the sandbox of Chromium needs namespaces that containers lack; it opens our own pages only
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


class Person:
    """One browser context with its session; `errors`: what the console and the pages complained of."""

    def __init__(
        self, browser: Any, base: str, *, phone: bool = False, dark: bool = False, scripts: bool = True
    ) -> None:
        self.context = browser.new_context(
            viewport=PHONE if phone else WIDE,
            color_scheme="dark" if dark else "light",
            java_script_enabled=scripts,
            reduced_motion="reduce",
        )
        self.page, self.base, self.scripts = self.context.new_page(), base, scripts
        self.look = f"{'phone' if phone else 'wide'}-{'dark' if dark else 'light'}"
        self.errors: list[str] = []
        self.page.on("console", lambda said: self.errors.append(said.text) if said.type == "error" else None)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))

    def sign_in(self, key: str) -> None:
        self.page.goto(self.base + "/")
        self.page.get_by_label("API key").fill(key)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.get_by_role("button", name="Sign out").wait_for()

    def open(self, path: str, heading: str) -> None:
        self.page.goto(self.base + path)
        self.sees(heading)

    def sees(self, heading: str) -> None:
        """The page has that heading, nothing in its console, nothing grave by axe-core, and no width to scroll."""
        found = self.page.locator("h1").inner_text()
        assert heading in found, found
        assert self.errors == []
        if self.scripts:
            assert self.axe() == []
        wide = self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, f"{self.page.url} is {wide} pixels too wide"
        self.picture(heading)

    def axe(self) -> list[str]:
        """Grave violations, in words. The script is put in by the debugger: the pages' own policy allows no other."""
        from axe_core_python.sync_playwright import Axe

        found = Axe().run(self.page)["violations"]
        return [
            f"{v['id']}: {v['help']}: {[n['html'][:160] for n in v['nodes']][:3]}"
            for v in found
            if v["impact"] in GRAVE
        ]

    def picture(self, name: str) -> None:
        folder = os.environ.get(PICTURES)
        if folder:
            plain = "".join(c if c.isalnum() else "-" for c in name.casefold())[:40]
            self.page.screenshot(path=str(Path(folder) / f"{plain}-{self.look}.png"), full_page=True)

    def close(self) -> None:
        self.context.close()
