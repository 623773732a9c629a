"""The live page in a real browser: it follows a run, works by keyboard, narrow and dark, and axe finds no faults."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from beamlike.observe import serving
from tests.beamlike.observe.live.places import append, write_run
from tests.beamlike.observe.live.test_serving import address_of
from tests.support.browser import find_program
from tests.support.simulated import flagship, wide

sync_api = pytest.importorskip("playwright.sync_api")
axe = pytest.importorskip("axe_playwright_python.sync_playwright")

PAGES = ("", "/sources", "/batches", "/rows", "/completeness", "/stages/average")


@pytest.fixture(scope="module")
def browser() -> Iterator[sync_api.Browser]:
    program = find_program()
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    write_run(folder / "flagship.jsonl", flagship(held=True, ended=False))
    write_run(folder / "wide.jsonl", wide(each=50))
    return folder


@pytest.fixture(scope="module")
def site(place: Path) -> Iterator[str]:
    with serving(place) as address:
        yield address.rstrip("/")


@pytest.fixture
def page(browser: sync_api.Browser) -> Iterator[sync_api.Page]:
    """A page of a new profile. Any console message of it fails the test."""
    opened = browser.new_page(viewport={"width": 1280, "height": 900})
    said: list[str] = []
    opened.on("console", lambda message: said.append(message.text))
    opened.on("pageerror", lambda error: said.append(str(error)))
    opened.on("dialog", lambda dialog: said.append(f"dialog {dialog.message}"))
    yield opened
    opened.close()
    assert said == []


def show(page: sync_api.Page, address: str) -> None:
    page.goto(address)
    page.wait_for_selector("#link:text-is('live')")
    if page.locator(".charts").count():
        page.wait_for_selector(".charts canvas")


def faults(page: sync_api.Page) -> list[tuple[str, str]]:
    """Returns the violations that axe finds, and whether the page is wider than its window."""
    found = axe.Axe().run(page).response["violations"]
    listed = [(one["id"], one["nodes"][0]["html"][:200]) for one in found]
    if page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"):
        listed.append(("wider than the window", page.url))
    return listed


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_axe_finds_nothing_on_any_page_wide_and_narrow_light_and_dark(
    page: sync_api.Page, site: str, place: Path, width: int, scheme: str
) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)
    run = site + address_of(place / "flagship.jsonl")
    for address in (f"{site}/", *(run + one for one in PAGES), f"{site}{address_of(place / 'wide.jsonl')}"):
        show(page, address)
        assert faults(page) == []


def test_a_page_follows_its_run_without_a_reload(page: sync_api.Page, tmp_path: Path) -> None:
    history = flagship(held=True, batches=12, ended=False)
    later = [history.batches.pop() for _ in range(3)][::-1]
    path = write_run(tmp_path / "live.jsonl", history)
    with serving(path) as address:
        show(page, address.rstrip("/") + address_of(path) + "/stages/average")
        page.evaluate("window.loadedOnce = true")
        page.fill("input[name=window]", "2026-01-31T12:0")
        page.click("summary >> nth=0")
        for record in later:
            append(path, record)
            page.wait_for_selector(f".facts >> text='batch {record.batch}'")
        assert page.evaluate("window.loadedOnce")
        # The user's input and opened sections remain.
        assert page.input_value("input[name=window]") == "2026-01-31T12:0"
        assert page.locator("details[open]").count() == 1
        page.goto("about:blank")


def test_a_page_says_that_the_server_is_gone(browser: sync_api.Browser, tmp_path: Path) -> None:
    path = write_run(tmp_path / "a.jsonl", flagship(held=True, batches=3))
    page = browser.new_page()
    with serving(path) as address:
        show(page, address.rstrip("/") + address_of(path))
    page.wait_for_selector("#link:text-is('not live: waiting for the server')")
    page.close()


def test_a_click_on_the_chart_asks_about_the_window_at_that_time(
    page: sync_api.Page, site: str, place: Path
) -> None:
    show(page, f"{site}{address_of(place / 'flagship.jsonl')}/stages/average")
    page.locator(".charts figure.large .u-over").click(position={"x": 300, "y": 100})
    page.wait_for_url("**window=**")
    assert page.locator("#answer").inner_text().startswith("Window [")
    assert page.input_value("input[name=window]")


def test_everything_is_reached_by_keyboard(page: sync_api.Page, site: str, place: Path) -> None:
    show(page, f"{site}{address_of(place / 'flagship.jsonl')}")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    reached = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.getAttribute('href') ?? document.activeElement.id"))
    stages = [one for one in reached if one and "/stages/" in one]
    assert len(stages) == 3
    page.focus("svg.graph a[href*='/stages/average']")
    page.keyboard.press("Enter")
    page.wait_for_url("**/stages/average")


def test_names_of_data_do_nothing_in_a_browser(page: sync_api.Page, site: str, place: Path) -> None:
    run = f"{site}{address_of(place / 'wide.jsonl')}"
    for address in (run, f"{run}/sources", f"{run}/stages/all"):
        show(page, address)
    assert "alert(" in page.content()


def test_a_large_graph_is_drawn_as_a_whole(page: sync_api.Page, site: str, place: Path) -> None:
    show(page, f"{site}{address_of(place / 'wide.jsonl')}")
    assert page.locator("svg.graph a").count() == 100
    inside = page.evaluate(
        """() => { const edge = document.querySelector('svg.graph').getBoundingClientRect();
        const boxes = [...document.querySelectorAll('svg.graph a > svg')];
        return boxes.every((box) => {
          const at = box.getBoundingClientRect();
          const wide = at.left >= edge.left && at.right <= edge.right;
          return wide && at.top >= edge.top && at.bottom <= edge.bottom; }) }"""
    )
    assert inside
