"""The console as a person uses it, and what must never happen on the way."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import axe_playwright_python
from playwright.async_api import ConsoleMessage, Locator, Page, Request, expect

from tests.serving import Gateway

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PICTURES = Path(__file__).parent / "screenshots"
AXE = Path(axe_playwright_python.__file__).parent / "axe.min.js"
SECONDS_MAX = 10

expect.set_options(timeout=1000 * SECONDS_MAX)

Open = Callable[..., Awaitable["Console"]]


class Console:
    """One page of a browser, with the errors that it had and the requests that it made."""

    def __init__(self, page: Page, gateway: Gateway) -> None:
        self.page = page
        self.gateway = gateway
        self.errors: list[str] = []
        self.foreign: list[str] = []
        self._expects_failures = False
        page.set_default_timeout(1000 * SECONDS_MAX)
        page.on("console", self._logged)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", self._requested)

    def _logged(self, message: ConsoleMessage) -> None:
        failed = message.text.startswith("Failed to load resource")
        if message.type in ("error", "warning") and not (failed and self._expects_failures):
            self.errors.append(message.text)

    def _requested(self, request: Request) -> None:
        if not request.url.startswith((self.gateway.url + "/", "data:")):
            self.foreign.append(request.url)

    def expect_failures(self) -> None:
        """The browser reports each answer that is no success: from here on that is meant."""
        self._expects_failures = True

    def require_clean(self) -> None:
        assert not self.errors, self.errors
        assert not self.foreign, self.foreign

    async def close(self) -> None:
        """Before its gateway ends: a page that is open then has lost its connection."""
        await self.page.context.close()

    async def go(self, path: str = "") -> None:
        await self.page.goto(f"{self.gateway.url}/{path}")
        await self.page.locator("main h1").wait_for()

    def get(self, selector: str, text: str | None = None) -> Locator:
        return self.page.locator(selector, has_text=text) if text else self.page.locator(selector)

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name, exact=True)

    def row(self, text: str) -> Locator:
        return self.page.locator("table.runs tbody tr", has_text=text)

    def turn(self, number: int) -> Locator:
        return self.page.locator(f"details[data-turn='{number}']")

    async def sees(self, selector: str, text: str) -> None:
        await expect(self.page.locator(selector).first).to_contain_text(text)

    async def stopped(self, status: str) -> None:
        """The pill at the top of a run's page says so."""
        await expect(self.page.locator(".run-title .pill")).to_have_text(status)

    async def picture(self, name: str, *, whole: bool = True) -> None:
        PICTURES.mkdir(exist_ok=True)
        await self.page.screenshot(path=PICTURES / f"{name}.png", full_page=whole)

    async def accessibility_findings(self) -> list[str]:
        """What axe finds that is serious."""
        await self.page.evaluate(AXE.read_text())
        found: dict[str, Any] = await self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        return [
            f"{finding['id']}: {node['html'][:120]} {node['failureSummary'][:200]}"
            for finding in found["violations"]
            if finding["impact"] in ("serious", "critical")
            for node in finding["nodes"]
        ]
