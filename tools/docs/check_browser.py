"""Checks of the built site in Chromium: console, requests, overflow on small screens, search."""

from __future__ import annotations

import functools
import http.server
import os
import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["ARGUMENTS", "QUERIES", "chromium", "check_browser"]

ARGUMENTS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)

QUERIES: Mapping[str, str] = {
    "hessian": "reference/api/odyssey.hessian",
    "jacobian": "reference/api/odyssey.jacobian",
    "hvp": "reference/api/odyssey.hvp",
    "grad": "reference/api/odyssey.grad",
    "custom_vjp": "reference/api/odyssey.custom_vjp",
    "checkpoint": "reference/api/odyssey.checkpoint",
    "scan": "reference/api/odyssey.scan",
    "while_loop": "reference/api/odyssey.while_loop",
    "compile": "reference/api/odyssey.compile",
    "scipy_objective": "reference/api/odyssey.optim.scipy_objective",
    "huber": "reference/api/odyssey.losses.huber",
    "Adam": "reference/api/odyssey.optim.Adam",
    "clip_grad_norm_": "reference/api/odyssey.optim.clip_grad_global_norm",
    "save": "reference/api/odyssey.save",
    "load": "reference/api/odyssey.load",
    "batches": "reference/api/odyssey.batches",
    "check_gradients": "reference/api/odyssey.testing.check_gradients",
    "einsum": "reference/ops/einsum",
    "conv2d": "reference/ops/conv2d",
    "softmax": "reference/ops/softmax",
    "unsqueeze": "reference/ops/expand_dims",
    "vmap": "coming-from/jax",
    "NaN": "how-to/find-a-nan",
    "error bars": "how-to/error-bars",
    "Generator": "reference/api/odyssey.Generator",
    "ODYSSEY_CACHE": "environment_variables",
}
"""Queries of the search page, and the page that must be among the first results."""

_FIRST = 12
_OVERFLOW = """() => {
  // The page, or a box around the article, that scrolls sideways; code and tables may.
  const start = document.querySelector('article') || document.body;
  for (let box = start; box; box = box.parentElement) {
    const scrolls = box === document.documentElement || box === document.body
      || getComputedStyle(box).overflowX !== 'visible';
    const wide = box.scrollWidth - box.clientWidth;
    if (!scrolls || wide <= 1 || box.clientWidth === 0) continue;
    const limit = box.getBoundingClientRect().left + box.clientWidth + 1;
    const far = [...start.querySelectorAll('*')].filter(
      e => e.getBoundingClientRect().right > limit && !e.closest('pre, .table-wrapper'));
    const last = far.length ? far[far.length - 1] : box;
    return `${wide} px too wide, by ${last.tagName} ${last.textContent.trim().slice(0, 40)}`;
  }
  return null;
}"""


def chromium() -> str | None:
    """Return the path of an installed Chromium, or None."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    return None


def check_browser(
    folder: Path, pages: Sequence[str], queries: Mapping[str, str] = QUERIES
) -> Iterator[str]:
    """Yield a line for each fault that a browser shows.

    Args:
        folder: The site.
        pages: Pages to open, as paths without suffix.
        queries: Queries of the search page, and the pages that they must find.
    """
    from playwright.sync_api import sync_playwright

    with served(folder) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(ARGUMENTS))
        for width, scheme in ((390, "light"), (1280, "dark"), (1280, "light"), (390, "dark")):
            # Each page on a small screen; of the other combinations, one page in ten.
            chosen = pages if (width, scheme) == (390, "light") else pages[::10]
            with opened(browser, width, scheme, address) as (page, faults):
                for name in chosen:
                    page.goto(f"{address}/{name}.html", wait_until="load")
                    wide = page.evaluate(_OVERFLOW)
                    if wide:
                        faults.append(f"overflow at {width} px: {name}, {wide}")
                    yield from (f"{fault} ({name}, {width} px, {scheme})" for fault in faults)
                    faults.clear()
        with opened(browser, 1280, "light", address) as (page, faults):
            for query, wanted in queries.items():
                found = search(page, address, query)
                if wanted not in found[:_FIRST]:
                    yield f"search: {query!r} does not find {wanted}, but {', '.join(found[:5])}"
            yield from faults
        browser.close()


@contextmanager
def opened(browser: Any, width: int, scheme: str, address: str) -> Iterator[tuple[Any, list[str]]]:
    """Yield a page, and a list that gathers its console errors and requests to other hosts."""
    faults: list[str] = []
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, reduced_motion="reduce"
    )
    page = context.new_page()

    def refuse(route: Any) -> None:
        if route.request.url.startswith((address, "data:")):
            route.continue_()
        else:
            faults.append(f"request to another host: {route.request.url}")
            route.abort()

    page.route(lambda url: not url.startswith(address), refuse)
    page.on(
        "console",
        lambda message: (
            faults.append(f"console error: {message.text}") if message.type == "error" else None
        ),
    )
    page.on("pageerror", lambda error: faults.append(f"console error: {error}"))
    yield page, faults
    context.close()


def search(page: Any, address: str, query: str) -> list[str]:
    """Return the pages that the search page lists for a query, in order."""
    page.goto(f"{address}/search.html?q={query.replace(' ', '+')}", wait_until="load")
    # Results come in order, a few a second on a busy machine: the first of them are enough.
    page.wait_for_function(
        f"() => document.querySelectorAll('#search-results ul.search li').length >= {2 * _FIRST}"
        " || document.querySelector('#search-results .search-summary, #search-results p')"
        "?.textContent.match(/finished|did not match/i)",
        timeout=60_000,
    )
    links = page.eval_on_selector_all(
        "#search-results ul.search li > a", "links => links.map(link => link.getAttribute('href'))"
    )
    names = [link.partition("?")[0].partition("#")[0].removesuffix(".html") for link in links]
    return list(dict.fromkeys(names))


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder on loopback, and yield its address."""
    handler = functools.partial(_QuietHandler, directory=os.fspath(folder))
    server = _QuietServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _QuietServer(http.server.ThreadingHTTPServer):
    """A server that says nothing when a browser leaves a page before it has all of it."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Write nothing."""


class _QuietHandler(http.server.SimpleHTTPRequestHandler):
    """Serves files without a line on standard error for each request."""

    def log_message(self, format: str, *arguments: Any) -> None:
        """Write nothing."""
