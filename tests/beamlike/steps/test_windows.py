"""Rows for which user-defined windows fail: they are dead letters of `window_into` and affect no other row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import attrs
import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import beamlike as bl
from beamlike.rows.dead_letters import UNCLAIMED
from beamlike.steps.windows import parts
from tests.beamlike.rows.test_dead_letters import numbers
from tests.beamlike.runtime.run.test_dead_letter_ways import kept, named, read, run
from tests.support.pipelines import frame, plays
from tests.support.shards import Query
from windowing.columns import EVENT_TIME, WINDOW_END

SECOND = 1_000_000
Bounds = tuple[int, int]


@attrs.frozen
class Spans(bl.CustomWindows):
    """Windows whose lengths in seconds are in the element's text; a negative one is invalid."""

    columns = ("text",)
    called: list[Any] = attrs.field(factory=list, eq=False, repr=False)

    def assign_windows(self, time: int, row: dict[str, Any]) -> Iterable[Bounds]:
        self.called.append(row["text"])
        for seconds in row["text"].split():
            yield (time, time + SECOND * int(seconds))


class Merging(bl.CustomWindows):
    """Sessions with a gap for each element; a session of more than a minute is refused."""

    columns = ("text",)

    def assign_windows(self, time: int, row: dict[str, Any]) -> Iterable[Bounds]:
        return [(time, time + SECOND * int(seconds)) for seconds in row["text"].split()]

    def merge_windows(self, windows: list[Bounds]) -> Iterable[tuple[Iterable[Bounds], Bounds]]:
        whole = (windows[0][0], max(end for _, end in windows))
        if whole[1] - whole[0] > 60 * SECOND:
            raise ValueError("longer than a minute")
        yield windows, whole


texts = st.lists(st.sampled_from(["1", "2 7", "", "x", "3 y", "-1", "0", "1 1", None]), max_size=20)
GOOD = {"1": 1, "2 7": 2, "": 0, "1 1": 1}


@given(texts)
@example(["x"] * 3)
def test_exactly_the_rows_without_windows_are_set_aside_and_each_is_asked_for_once(given: list[Any]) -> None:
    windows = Spans()
    collection = plays().with_columns(text=bl.lit("")).window_into(windows)
    rows = frame(*range(len(given)), text=pl.Series(given, dtype=pl.String))
    listing, spreading = parts(collection.node.origin)
    attempt = listing.attempt(rows.lazy())
    listed, letters = attempt.rows, attempt.dead_letters
    after = spreading.apply(listed).collect()
    bad = [number for number, text in enumerate(given) if text not in GOOD]
    assert numbers([] if letters is None else letters.to_dicts()) == bad
    assert Counter(after["tick"]) == +Counter({n: GOOD[text] for n, text in enumerate(given) if text in GOOD})
    assert (after[WINDOW_END] > after[EVENT_TIME]).all()
    assert windows.called == given


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x", "ValueError: invalid literal for int() with base 10: 'x'"),
        (
            "-1",
            "ValueError: Spans.assign_windows at 0 gave the window (0, -1000000); expected (start, end) in",
        ),
        (None, "AttributeError: 'NoneType' object has no attribute 'split'"),
    ],
)
def test_the_letter_says_why(text: str | None, why: str) -> None:
    p, lost = bl.Pipeline("p"), bl.Memory()
    windowed = read(p, [text]).window_into(Spans(), name="spans")
    windowed.dead_letters().write("lost", lost)
    run(p)
    (letter,) = lost.rows()
    assert letter["step"] == "spans"
    assert letter["error"].startswith(why)


def test_an_element_in_several_windows_that_merge_is_set_aside() -> None:
    p, lost = bl.Pipeline("p"), bl.Memory()
    read(p, ["1 2", "3"]).window_into(Merging()).dead_letters().write("lost", lost)
    run(p)
    assert lost.frame()["error"].to_list() == [
        "ValueError: Merging.assign_windows at 0 gave [(0, 1000000), (0, 2000000)]; expected at most one window, as "
        "windows of this class merge"
    ]


def test_a_time_that_python_cannot_hold_is_a_letter_of_its_row_alone() -> None:
    @attrs.frozen
    class ByDay(bl.CustomWindows):
        columns = ("at",)

        def assign_windows(self, time: int, row: dict[str, Any]) -> Iterable[Bounds]:
            return [(time, time + row["at"].day)]

    listing, _ = parts(plays().window_into(ByDay()).node.origin)
    far = pl.Series("at", [0, 2**60, 0], pl.Int64).cast(pl.Datetime("us", "UTC"))
    attempt = listing.attempt(frame(1, 2, 3, at=far).lazy())
    listed, letters = attempt.rows, attempt.dead_letters
    assert listed.collect()["tick"].to_list() == [0, 2]
    assert letters is not None
    assert letters["error"].to_list()[0].startswith("ValueError: it has a time or a duration that Python")


# In pipelines


def grouped() -> tuple[bl.Pipeline, dict[str, bl.Memory]]:
    """Declares two groupings of one `window_into` with a dead letter sink, and one of another without."""
    p, sinks = bl.Pipeline("p"), {name: bl.Memory() for name in ("counts", "sums", "late", "lost", "others")}
    stream = bl.TestStream({"n": int, "text": str, "at": int})
    given = ["2 7", "x", "", "1", "3 y", None]
    stream = stream.add_elements([{"n": n, "text": text, "at": n} for n, text in enumerate(given)])
    stream = stream.advance_watermark_to(60)
    # Late rows, one of which is also bad.
    stream = stream.add_elements([{"n": 7, "text": "1 90", "at": 7}, {"n": 8, "text": "1 z", "at": 8}])
    rows = p.read("rows", stream, timestamp="at", timestamp_unit="s")
    spans = rows.window_into(Spans(), name="spans")
    counts = spans.group_by("n", name="count").aggregate(rows=bl.count())
    counts.write("counts", sinks["counts"])
    counts.late().write("late", sinks["late"])
    spans.filter(bl.col("n") >= 0).group_by("n", name="sum").aggregate(total=bl.sum("n")).write(
        "sums", sinks["sums"]
    )
    spans.dead_letters().write("lost", sinks["lost"])
    others = rows.window_into(Merging(), name="merging").group_by("n").aggregate(rows=bl.count())
    others.write("others", sinks["others"])
    return p, sinks


LETTERS = {"spans": 4, "merging": 6}


def test_the_rest_goes_on_and_every_row_is_accounted_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    p, sinks = grouped()
    done = run(p)
    assert sorted(named(sinks["lost"])) == [("spans", 1), ("spans", 4), ("spans", 5), ("spans", 8)]
    assert Counter(sinks["counts"].frame()["n"]) == {0: 2, 3: 1, 7: 1}
    assert Counter(sinks["sums"].frame()["n"]) == {0: 2, 3: 1, 7: 1}
    assert sorted(sinks["late"].frame().select("n", "reason").rows()) == [(2, "no window"), (7, "late")]
    assert Counter(letter["step"] for letter in kept(done)) == {"merging": 6}
    assert sum((Counter(batch.dead_letters) for batch in done.batches), Counter()) == LETTERS
    stages = [batch.stages["count"] for batch in done.batches]
    # In = in a pane, dropped, or a dead letter.
    assert sum(stage.elements for stage in stages) == 8 - LETTERS["spans"]
    assert sum(stage.placed or 0 for stage in stages) == 6
    assert sum((Counter(stage.dropped) for stage in stages), Counter()) == {"late": 1, "no window": 1}
    assert sum(stage.emitted or 0 for stage in stages) == 4


@pytest.mark.parametrize("shards", [1, 3])
def test_between_operators_they_are_what_they_are_in_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shards: int
) -> None:
    monkeypatch.chdir(tmp_path)
    p, sinks = grouped()
    run(p)
    batches = list(Query(grouped()[0].plan(), shards).batches())
    for name, sink in sinks.items():
        frames = [found for batch in batches for found in batch.frames(name)]
        column = "row" if name == "lost" else "n"
        there = Counter(value for found in frames for value in found[column])
        assert there == Counter(row[column] for row in sink.rows())
    left = Counter(step for batch in batches for found in batch.frames(UNCLAIMED) for step in found["step"])
    assert left == {"merging": 6}
    assert not any(told.dead_letters.errors for _, told in batches[0].notes())


def test_a_run_that_is_to_fail_fails_with_the_users_own_error_and_names_the_step() -> None:
    p = bl.Pipeline("p", on_error="fail")
    windowed = read(p, ["1", "x"]).window_into(Spans(), name="spans")
    windowed.group_by("n").aggregate(rows=bl.count()).write("out", bl.Memory())
    with pytest.raises(ValueError, match="invalid literal for int") as caught:
        run(p)
    assert caught.value.__notes__ == [
        "in Spans.assign_windows at 1000000",
        "in the function of step 'spans' (window_into)",
    ]


def test_that_windows_cannot_merge_fails_the_run_with_step_and_windows() -> None:
    p = bl.Pipeline("p")
    windowed = read(p, ["10", "70"]).window_into(Merging())
    windowed.aggregate(rows=bl.count()).named("all").write("out", bl.Memory())
    with pytest.raises(ValueError, match="longer than a minute") as caught:
        run(p)
    windows = "[(0, 10000000), (1000000, 71000000)]"
    assert caught.value.__notes__ == [f"in Merging.merge_windows of {windows}", "in step 'all'"]


def test_built_in_windows_have_no_dead_letters() -> None:
    with pytest.raises(bl.PlanError, match="'minutes' is neither: call it there"):
        plays().window_into(bl.FixedWindows("1m"), name="minutes").dead_letters()
