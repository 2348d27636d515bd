"""Pages in a Chromium that runs offline; their clock stands still between turns.

The system's Chromium is used, through the package playwright. A thread owns each browser, which serves
several pages at once, each in a context of its own. A page that hangs, or a browser that dies, means
`NoVerdict`; the next page gets a new one.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import random
import shutil
import signal
import threading
from collections.abc import Coroutine, Sequence
from concurrent.futures import CancelledError
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from gem.closing import Closing
from gem.errors import MissingExtra, NoVerdict, needs_extra

if TYPE_CHECKING:
    from playwright import async_api as playwright

PAGES = 8
"""The most pages of one browser."""

STEP_MS = 1000
"""How much of a page's time passes with each action, in milliseconds."""

LAUNCH_S, TURN_S, CLOSE_S = 20.0, 15.0, 5.0
"""Seconds that the start of a browser, one turn of a page, and closing may take."""

KEYS = tuple(
    """
Enter Tab Escape Backspace Delete Space ArrowUp ArrowDown ArrowLeft ArrowRight Home End PageUp PageDown
Control+a Control+c Control+v Control+x Control+z Control+b Control+i Control+u Shift+Tab
""".split()  # noqa: SIM905
)
"""The keys that `Page.press` takes, besides single characters."""

IDLE_S = 10.0
"""Seconds that a browser waits for another page."""

_ARGUMENTS = (
    *("--disable-gpu", "--mute-audio", "--no-first-run", "--disable-extensions", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"),
    *("--host-resolver-rules=MAP * ~NOTFOUND", "--font-render-hinting=none"),
)
_SCRIPT = Path(__file__).with_name("browser_page.js")
_STILL = "*, *::before, *::after { transition: none !important; animation: none !important; }"

_T = TypeVar("_T")


def find_chromium() -> str | None:
    """Return the path of the system's Chromium: the variable CHROMIUM, else one on PATH, or None."""
    named = os.environ.get("CHROMIUM")
    names = (named,) if named else ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return next(filter(None, map(shutil.which, names)), None)


def check_browser(what: str) -> None:
    """Refuse to go on without playwright or without a Chromium; `what` needs them.

    Raises:
        MissingExtra: with the command that adds what is missing.
    """
    with needs_extra(what, "playwright", "browser"):
        import playwright.async_api  # noqa: F401
    if find_chromium() is None:
        if named := os.environ.get("CHROMIUM"):
            raise MissingExtra(
                f"{what} needs a Chromium, and the variable CHROMIUM is {named!r}, where no program is: "
                "set it to the path of one, or unset it and have one on PATH."
            )
        raise MissingExtra(
            f"{what} needs a Chromium, and there is none on PATH: apt install chromium (or set the variable "
            "CHROMIUM to the path of one)."
        )


class Browser:
    """A Chromium process, and the thread that owns it; calls wait in the queue of the thread's loop."""

    def __init__(self) -> None:
        """Start the browser.

        Raises:
            NoVerdict: when it does not start.
        """
        self.pages = 0
        self._pid = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="gem-browser", daemon=True)
        self._thread.start()
        try:
            self.run(self._launch(), LAUNCH_S)
        except BaseException:
            self.close()
            raise

    @property
    def alive(self) -> bool:
        """Whether the browser is there and answers for its pages."""
        return self._thread.is_alive() and self._browser.is_connected()

    def run(self, work: Coroutine[Any, Any, _T], seconds: float) -> _T:
        """Carry out `work` on the browser's thread, for at most so many seconds.

        Raises:
            NoVerdict: when it takes longer, or the page or the browser fails.
        """
        from playwright.async_api import Error

        future = asyncio.run_coroutine_threadsafe(asyncio.wait_for(work, seconds), self._loop)
        try:
            return future.result(seconds + CLOSE_S)
        except TimeoutError:
            future.cancel()
            raise NoVerdict(f"the browser gave no answer within {seconds:g} s.") from None
        except (Error, CancelledError, OSError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise NoVerdict(f"the browser failed: {reason:.200}") from error

    def close(self) -> None:
        """End the browser and its thread; a browser that does not answer is killed."""
        for work in (self._end_browser(), self._end_driver()):
            with contextlib.suppress(NoVerdict):
                self.run(work, CLOSE_S)
        if self._pid:
            with contextlib.suppress(OSError):
                os.kill(self._pid, signal.SIGKILL)
        with contextlib.suppress(RuntimeError):  # its loop is closed
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CLOSE_S)

    def end_when_idle(self) -> None:
        """End the browser when it has had no page for a while."""
        self._loop.call_soon_threadsafe(self._loop.call_later, IDLE_S, self._end_if_idle)

    def _end_if_idle(self) -> None:
        """End the browser if it has no page; on its thread, which must not wait."""
        if not _lock.acquire(blocking=False):
            self._loop.call_later(IDLE_S, self._end_if_idle)
            return
        try:
            if self.pages or self not in _browsers:
                return
            _browsers.remove(self)
        finally:
            _lock.release()
        self._ending = self._loop.create_task(self._end())

    async def _end(self) -> None:
        with contextlib.suppress(Exception):  # it is gone
            await asyncio.wait_for(self._end_browser(), CLOSE_S)
            await asyncio.wait_for(self._end_driver(), CLOSE_S)
        self._loop.stop()

    def _serve(self) -> None:
        self._loop.run_forever()
        self._loop.close()

    async def open(self, url: str, size: tuple[int, int]) -> playwright.Page:
        """Open a page of a local file, in a context of its own without a network."""
        context = await self._browser.new_context(
            viewport={"width": size[0], "height": size[1]},
            offline=True,
            accept_downloads=False,
            service_workers="block",
            locale="en-US",
            timezone_id="UTC",
        )
        context.set_default_timeout(1000 * TURN_S)
        await context.add_init_script(path=_SCRIPT)
        page = await context.new_page()
        await page.goto(url)
        await _prepare(page)
        return page

    async def _launch(self) -> None:
        from playwright.async_api import async_playwright

        with contextlib.suppress(ImportError):  # it draws from the global generator
            from playwright._impl.isomorphic import trace_utils

            vars(trace_utils)["random"] = random.Random()
        self._playwright = await async_playwright().start()
        self._browser = await self._playwright.chromium.launch(
            executable_path=find_chromium(),
            args=_ARGUMENTS,
            chromium_sandbox=False,  # it needs rights that containers lack; its pages are local files
            handle_sigint=False,
            handle_sigterm=False,
            handle_sighup=False,
            timeout=1000 * LAUNCH_S,
        )
        session = await self._browser.new_browser_cdp_session()
        processes = await session.send("SystemInfo.getProcessInfo")
        self._pid = next(each["id"] for each in processes["processInfo"] if each["type"] == "browser")
        await session.detach()

    async def _end_browser(self) -> None:
        if self._pid:
            await self._browser.close()
            self._pid = 0  # it may belong to another process by now

    async def _end_driver(self) -> None:
        if hasattr(self, "_playwright"):
            await self._playwright.stop()


_browsers: list[Browser] = []
_lock = threading.Lock()


def _forget_browsers() -> None:
    """Forget the browsers of the parent process, which has their threads."""
    global _lock
    _browsers.clear()
    _lock = threading.Lock()


@atexit.register
def close_browsers() -> None:
    """Close the browsers of this process."""
    while _browsers:
        _browsers.pop().close()


os.register_at_fork(after_in_child=_forget_browsers)


class Page(Closing):
    """A page of a local file; every method is carried out on the thread of its browser.

    `nodes` numbers the page's nodes; the methods that act take these numbers.
    """

    def __init__(self, url: str, size: tuple[int, int]) -> None:
        """Open the page.

        Args:
            url: the address of a local file, as ``file:///...``.
            size: of the window, in pixels.

        Raises:
            NoVerdict: when the browser does not start, or the page does not load.
        """
        self._browser: Browser | None = None
        with _lock:
            for browser in [each for each in _browsers if not each.alive]:
                _browsers.remove(browser)
                browser.close()
            free = [each for each in _browsers if each.pages < PAGES]
            if not free:
                _browsers.append(Browser())
            self._browser = free[0] if free else _browsers[-1]
            self._browser.pages += 1
        self._page: Any = None
        try:
            self._page = self._browser.run(self._browser.open(url, size), LAUNCH_S)
        except BaseException:
            self.close()
            raise

    @property
    def alive(self) -> bool:
        """Whether the page can be worked with."""
        return self._browser is not None and self._browser.alive

    def run(self, work: Coroutine[Any, Any, _T], seconds: float = TURN_S) -> _T:
        """Carry out `work` on the thread of the page's browser; a page that fails is closed.

        Raises:
            NoVerdict: when it takes longer, or the page or the browser fails, or is closed.
        """
        if self._browser is None:
            work.close()
            raise NoVerdict("the page is closed.")
        try:
            return self._browser.run(work, seconds)
        except NoVerdict:
            self.close()
            raise

    def close(self) -> None:
        """Close the page; a second call does nothing. A browser without pages ends after `IDLE_S`."""
        browser, self._browser = self._browser, None
        if browser is None:
            return
        if self._page is not None and browser.alive:
            try:
                browser.run(self._page.context.close(), CLOSE_S)
            except NoVerdict:
                with _lock:  # a browser that cannot close a page serves no other
                    if browser in _browsers:
                        _browsers.remove(browser)
                        browser.close()
        with _lock:
            browser.pages -= 1
            if not browser.pages and browser in _browsers:
                browser.end_when_idle()

    # -- what runs on the browser's thread

    async def evaluate(self, script: str, *arguments: Any) -> Any:
        """Return the value of a script's function; what an agent wrote is only ever an argument."""
        return await self._page.evaluate(script, list(arguments))

    async def reload(self) -> None:
        """Load the page again, as it was at first."""
        await self._page.mouse.move(0, 0)
        await self._page.reload()
        await _prepare(self._page)

    async def rest(self) -> None:
        """Take mouse, focus, marks and scrolling back, and let what moves come to its end."""
        await self._page.mouse.move(0, 0)
        await self.evaluate("() => __gem.rest()")

    async def picture(self, size: tuple[int, int]) -> bytes:
        """Return the upper left part of the window as PNG."""
        area = {"x": 0, "y": 0, "width": size[0], "height": size[1]}
        picture: bytes = await self._page.screenshot(clip=area, animations="disabled", caret="hide")
        return picture

    async def click(self, ref: int, x: int | None = None, y: int | None = None) -> str:
        """Click on a node, in its middle or at a point of it. Return what was wrong, or ''."""
        point = await self._point(ref, x, y)
        if isinstance(point, str):
            return point
        await self._page.mouse.click(*point)
        return ""

    async def fill(self, ref: int, text: str) -> str:
        """Type a text in place of what a field has. Return what was wrong, or ''."""
        state = await self.evaluate("([ref, text]) => __gem.field(ref, text)", ref, text)
        if state == "type":
            last = text[-1:] if _is_key(text[-1:]) else ""  # a page may wait for the events of a key
            if body := text.removesuffix(last):
                await self._page.keyboard.insert_text(body)
            if last or not text:
                await self._page.keyboard.press(last or "Delete")
            return ""
        return {
            "done": "",
            "gone": _no_node(ref),
            "no field": f"[{ref}] is no field that takes text.",
            "locked": f"[{ref}] cannot be changed.",
        }[state]

    async def select(self, ref: int, text: str) -> str:
        """Choose an option of a list by its text, or mark a text within another node by dragging over it."""
        state = await self.evaluate("([ref, text]) => __gem.choose(ref, text)", ref, text)
        if isinstance(state, list):
            await self._drag(state[:2], state[2:])
            return ""
        return {
            "done": "",
            "gone": _no_node(ref),
            "no option": f"[{ref}] has no option {text!r:.80}.",
            "no text": f"[{ref}] has no text {text!r:.80}.",
        }[state]

    async def press(self, key: str) -> str:
        """Press a key of `KEYS`, or a single character. Return what was wrong, or ''."""
        if key not in KEYS and not _is_key(key):
            return f"there is no key {key!r:.40}; keys: a character, or {', '.join(KEYS)}."
        await self._page.keyboard.press(key)
        return ""

    async def drag(self, ref: int, to: int, x: int | None = None, y: int | None = None) -> str:
        """Drag a node onto another, or to a point of it. Return what was wrong, or ''."""
        end = await self._point(to, x, y)
        begin = await self._point(ref, None, None)
        if isinstance(begin, str) or isinstance(end, str):
            return begin if isinstance(begin, str) else str(end)
        await self._drag(begin, end)
        return ""

    async def scroll(self, ref: int, pixels: int) -> str:
        """Scroll a node down, or up where `pixels` is below 0. Return what was wrong, or ''."""
        if not await self.evaluate("([ref, pixels]) => __gem.scroll(ref, pixels)", ref, pixels):
            return _no_node(ref)
        await self.evaluate("() => __gem.settle()")
        return ""

    async def _point(self, ref: int, x: int | None, y: int | None) -> list[float] | str:
        if (x is None) != (y is None):
            return "a point has x and y."
        point: list[float] | None = await self.evaluate("([ref, x, y]) => __gem.point(ref, x, y)", ref, x, y)
        return _no_node(ref) if point is None else point

    async def _drag(self, begin: Sequence[float], end: Sequence[float]) -> None:
        mouse = self._page.mouse
        await mouse.move(*begin)
        await mouse.down()
        await mouse.move(*end, steps=4)
        await mouse.up()


async def _prepare(page: playwright.Page) -> None:
    await page.add_style_tag(content=_STILL)
    await page.evaluate("() => __gem.preload()")


def _no_node(ref: int) -> str:
    return f"there is no [{ref}] on the page."


def _is_key(text: str) -> bool:
    return len(text) == 1 and text.isascii() and text.isprintable()
