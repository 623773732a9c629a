"""The report: the content of the page, that it needs no other files, and its look in a browser."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import attrs
import pytest

import beamlike as bl
from beamlike.observe.charts.series import run_series
from beamlike.observe.report import report, write_report
from beamlike.plan.run_graph import describe_run
from beamlike.records.history import History
from tests.support.browser import Browser, find_browser
from tests.support.simulated import HARMFUL, SECOND, flagship, wide
from windowing.time import MIN_TIME

VOID = {"meta", "link", "br", "img", "hr", "path", "use", "rect"}


class Page(HTMLParser):
    """The text of a page, its tags, and its ids; counts opened and closed tags."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        facts = dict(attrs)
        self.ids += [facts["id"]] if "id" in facts else []
        self.loads += [facts[name] for name in ("src", "href", "xlink:href") if facts.get(name)]

    def handle_data(self, data):
        self.words.append(data.strip())

    @property
    def text(self) -> str:
        return " ".join(word for word in self.words if word)


@pytest.fixture(scope="module")
def held() -> str:
    return report(flagship(held=True))


@pytest.fixture(scope="module")
def page(held: str) -> Page:
    return Page(held)


def test_the_page_has_every_source_stage_and_sink_with_its_watermarks(page):
    for name in ("console", "mobile", "sessions of console", "sessions of mobile", "average", "averages"):
        assert name in page.text
    assert "input 12:09:03, output 12:08:40" in page.text
    assert "held by key 4058 in" in page.text


def test_the_page_has_the_figures_of_the_run(page):
    assert "60 batches, from 2026-01-01T12:00:00Z" in page.text
    history = flagship(held=True)
    elements = sum(batch.sources["mobile"].elements for batch in history.batches)
    assert f"{elements:,}" in page.text
    assert re.search(r"average .* \d+ early, \d+ on time, \d+ late 8 late", page.text)


def test_a_run_at_its_end_is_shown_as_it_was_before_the_end_of_input(page):
    assert "After batch 58, at 2026-01-01T12:09:40Z, the last before the end of input" in page.text
    assert "nothing waits any more" in page.text


def test_a_run_that_goes_on_says_what_its_stages_wait_for():
    text = Page(report(flagship(held=False, ended=False))).text
    assert "Watermarks before the end" not in text
    assert "Waits after batch 59" in text
    assert "average" in text.partition("Waits after")[2].partition("Rows")[0]


def test_charts_are_drawn_for_all_sources_together_and_for_each_stage(page):
    assert page.tags.count("svg") == 1 + 1 + 3
    assert page.text.count("event-time lag") >= 4
    assert page.text.count("processing-time lag") >= 3
    for label in ("input watermark", "on-time panes", "late panes", "early panes", "dropped, late"):
        assert label in page.text


def test_text_in_charts_stays_text(held):
    assert ">input watermark</text>" in held
    assert "font-family: 'DejaVu Sans', 'Verdana', sans-serif" in held


def test_the_page_loads_nothing(held, page):
    assert all(link.startswith(("#", "data:")) for link in page.loads)
    assert not {"script", "iframe", "object"} & set(page.tags)
    assert not re.search(r"url\((?!#)|@import|@font-face", held)
    assert "default-src 'none'" in held


def test_ids_are_unique_across_all_charts(page):
    assert len(page.ids) == len(set(page.ids))
    assert {link.removeprefix("#") for link in page.loads if link.startswith("#")} <= set(page.ids)


def test_the_same_history_gives_the_same_page(held):
    assert report(flagship(held=True)) == held


def test_names_cannot_harm_the_page():
    text = report(wide(each=3))
    assert HARMFUL not in text
    assert "script" not in Page(text).tags
    assert f"wide {HARMFUL}" in Page(text).text


def test_letters_that_this_machine_has_no_font_for_are_no_error():
    history = flagship(held=False, batches=3)
    plan = attrs.evolve(history.plan, pipeline="平均 \N{GRINNING FACE}\x07", stages=history.plan.stages)
    assert "平均" in report(attrs.evolve(history, plan=plan))


def test_a_run_without_a_batch_has_a_page_with_its_graph():
    page = Page(report(flagship(held=False, batches=0)))
    assert "no batch has been recorded yet" in page.text
    assert page.tags.count("svg") == 1


@pytest.mark.parametrize("batches", [1, 2])
def test_a_run_of_hardly_any_batches_has_a_page(batches):
    assert Page(report(flagship(held=True, batches=batches, ended=False))).tags.count("svg") == 5
    assert Page(report(flagship(held=True, batches=batches))).tags.count("svg") == 5


def test_batches_of_an_older_plan_may_lack_a_stage():
    history = flagship(held=False, batches=5)
    batches = [
        attrs.evolve(batch, stages={name: one for name, one in batch.stages.items() if name != "average"})
        for batch in history.batches[:2]
    ]
    history.batches[:2] = batches
    series = run_series(history).stages["average"]
    assert series.input[:2].tolist() == [MIN_TIME, MIN_TIME]
    assert "average" in report(history)


def replayed(history: History, *, faster: int = 1) -> History:
    """Returns the history a year later, and `faster` times faster."""
    later, start = 366 * 86_400 * SECOND, history.batches[0].processing_time
    history.batches[:] = [
        attrs.evolve(
            batch, processing_time=later + start + (batch.processing_time - start) // faster, finished=None
        )
        for batch in history.batches
    ]
    return history


def test_lags_of_elements_of_long_ago_are_told_behind_the_newest_source():
    text = Page(report(replayed(flagship(held=True)))).text
    assert text.count("lag behind the newest source") == 1 + 4
    assert "366d" not in text.partition("Waits after")[0]
    assert "mobile 12:09:30 0s" in text
    assert "console 12:09:03 27s" in text


def test_the_input_that_is_furthest_behind_is_the_one_with_the_thick_arrow(held):
    graph = held.partition("</figure>")[0]
    assert graph.count("stroke-dasharray") == 1


def test_what_stages_before_hold_back_is_shaded_and_told_where_it_is_most():
    held, free = (Page(report(flagship(held=one))).text for one in (True, False))
    assert "held back by stages before" in held
    assert re.search(r"\d+m\d+s held back ", held)
    assert not re.search(r"\d+m\d+s held back ", free)


def test_a_chart_of_nothing_says_so():
    history = flagship(held=False, batches=3)
    assert " none " in Page(report(history)).text


def test_percentile_watermarks_have_lines_and_idle_sources_are_named():
    history = flagship(held=False, ended=False)
    for place, batch in enumerate(history.batches):
        stage = batch.stages["average"]
        ahead = {} if stage.output == MIN_TIME else {66: stage.output + 20 * SECOND}
        stages = {**batch.stages, "average": attrs.evolve(stage, percentiles=ahead)}
        sources = {**batch.sources, "console": attrs.evolve(batch.sources["console"], idle=True)}
        history.batches[place] = attrs.evolve(batch, stages=stages, sources=sources)
    text = Page(report(history)).text
    assert "output, percentile 66" in text
    assert "idle: ignored downstream" in text


def test_write_report_makes_the_folder(tmp_path):
    write_report(flagship(held=False, batches=3), tmp_path / "new" / "report.html")
    assert (tmp_path / "new" / "report.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_long_runs_are_thinned_out():
    history = wide(each=2, batches=10_000)
    assert len(report(history)) < 600_000


def test_a_real_run_can_be_reported():
    p = bl.Pipeline("clicks")
    rows = [{"user": "ada", "at": second} for second in (1, 2, 3, 61, 50, 130)]
    clicks = p.read(
        "clicks",
        bl.Rows(rows, rows_per_batch=1),
        timestamp="at",
        timestamp_unit="s",
        watermark=bl.MonotonousTimestamps(),
    )
    clicks.window_into(bl.FixedWindows("1m")).group_by("user").aggregate(n=bl.count()).write(
        "out", bl.Memory()
    )
    plan = p.plan()
    run = bl.LocalRunner().run(plan)
    text = Page(report(History(describe_run(plan), list(run.batches)))).text
    assert "clicks.aggregate" in text
    assert "3 on time" in text
    assert "1 late" in text


# In a browser


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Browser:
    return find_browser(tmp_path_factory.mktemp("browser"))


@pytest.fixture(scope="module")
def written(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("reports")
    histories = {
        "held": flagship(held=True),
        "running": flagship(held=False, start=0, ended=False),
        "wide": wide(each=8),
        "short": flagship(held=False, batches=2, ended=False),
        **{f"in {faster}": replayed(flagship(held=True), faster=faster) for faster in (60, 977, 400_000)},
    }
    for name, history in histories.items():
        write_report(history, folder / f"{name}.html")
    return {name: folder / f"{name}.html" for name in histories}


def test_the_browser_has_nothing_to_complain_of_and_asks_nobody(browser, written):
    # The page's policy forbids all requests, so that one would be an error on the console.
    assert browser.console(written["held"]) == []


def test_the_console_would_tell_of_a_request(browser, written, tmp_path):
    asking = tmp_path / "asking.html"
    text = written["short"].read_text(encoding="utf-8")
    asking.write_text(text.replace("</h1>", "</h1><img src='http://127.0.0.1:9/x.png'>"), encoding="utf-8")
    assert any("Content Security Policy" in line for line in browser.console(asking))


@pytest.mark.parametrize("name", ["held", "running", "wide", "short", "in 60", "in 977", "in 400000"])
def test_no_label_overlaps_another_or_is_cut_off(browser, written, name):
    assert browser.faults(written[name]) == []


def test_labels_that_overlap_or_are_cut_off_would_be_found(browser, tmp_path):
    page = tmp_path / "faulty.html"
    texts = "".join(f"<text x='{x}' y='20'>label</text>" for x in (0, 10, 190))
    page.write_text(
        f"<!DOCTYPE html><body><svg width='200' height='40'>{texts}</svg></body>", encoding="utf-8"
    )
    assert [fault[0] for fault in browser.faults(page)] == ["overlap", "cut off"]


def test_the_page_fits_a_narrow_window(browser, written):
    assert browser.faults(written["running"], width=700) == []


def test_the_page_can_be_seen_and_printed(browser, written, tmp_path):
    image = pytest.importorskip("PIL.Image")
    browser.screenshot(written["held"], tmp_path / "page.png")
    browser.pdf(written["held"], tmp_path / "page.pdf")
    seen = image.open(tmp_path / "page.png").convert("RGB")
    colours = {colour for _, colour in seen.getcolors(maxcolors=1 << 24)}
    assert seen.size == (1100, 2000)
    assert {(0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00), (0xFF, 0xFF, 0xFF)} <= colours
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")
