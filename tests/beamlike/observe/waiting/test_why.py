"""The explanation of why a window has not fired, from records made by hand and from runs."""

from __future__ import annotations

import attrs
import pytest

import beamlike as bl
from beamlike.errors import UnknownStage, UnknownWindow
from beamlike.observe.waiting.explain import why
from beamlike.plan.run_graph import describe_run
from beamlike.records.graph import RunDescription, SourceDescription
from beamlike.records.history import History
from tests.support.histories import (
    PLAN,
    TWO_MINUTES,
    at,
    batch,
    history,
    replanned,
    source_record,
    stage,
    stage_record,
    waiting,
    window,
)
from windowing.time import GLOBAL_WINDOW_END, MAX_TIME, MIN_TIME

OVER = "window [2026-01-31T12:00:00Z, 2026-01-31T12:02:00Z) of stage `average` is over: "


def told(*arguments: object, **asked: str) -> str:
    """Returns all sentences after the first, which has the time of the records."""
    return "\n".join(why(history(*arguments), **asked)[1:])


def held_by_earliest() -> History:
    """Returns a history whose sessions are at 12:02; one of them began at 12:00:05 and holds the average."""
    sessions = stage_record(
        120, 5, {"console": 120, "mobile": 290}, window=window(5, 5, 185, key="7"), live=3, since=240
    )
    average = stage_record(5, 5, {"sessions": 5}, since=240)
    record = batch(
        9,
        300,
        {"console": source_record(120, 300, elements=3), "mobile": source_record(290, 300)},
        {"sessions": sessions, "average": average},
    )
    plan = replanned(PLAN, sessions=stage(("console", "mobile"), ("user",), timestamp="earliest"))
    return history(record, plan=plan)


def test_the_first_sentence_says_of_when_the_others_are():
    assert (
        why(history(waiting()))[0]
        == "after batch 7, at 2026-01-31T12:05:00Z; the run is running, or was killed"
    )
    assert why(history(waiting(), closed="stopped"))[0].endswith("the run was stopped")


def test_a_run_without_a_batch_says_so():
    assert why(history()) == [
        "pipeline 'scores' has not recorded a batch yet; the run is running, or was killed"
    ]


def test_a_silent_split_is_named_with_how_long_and_what_to_do():
    assert told(waiting(), stage="sessions").splitlines() == [
        "the output watermark of stage `sessions` is at 2026-01-31T12:00:43Z, 4m17s behind processing time, and has "
        "been there for 4m, since 2026-01-31T12:01:00Z",
        "stage `sessions` waits for source `console`, split 3, silent for 4m12s; set idle_after to let it pass",
        "source `console` has its watermark at 2026-01-31T12:00:43Z, by BoundedOutOfOrderness(bound=5s)",
    ]


def test_the_way_is_followed_upstream_to_the_one_that_waits_for_nobody():
    lines = told(waiting(), stage="average").splitlines()
    assert (
        lines[1]
        == "stage `average` waits for stage `sessions`, whose output watermark is at 2026-01-31T12:00:43Z"
    )
    assert lines[2].startswith("stage `sessions` waits for source `console`, split 3, silent for 4m12s")


def test_without_a_stage_each_is_told_once_the_furthest_downstream_first():
    text = told(waiting())
    assert text == told(waiting(), stage="average")
    other = stage_record(290, 290, {"mobile": 290})
    record = waiting()
    record = attrs.evolve(record, stages={**record.stages, "other": other})
    plan = replanned(PLAN, other=stage(("mobile",)))
    text = "\n".join(why(history(record, plan=plan)))
    assert text.count("waits for source `console`") == 1
    assert text.count("waits for source `mobile`, which had elements in this batch") == 1


def test_where_idle_after_is_set_it_says_when_the_split_is_let_pass():
    console = attrs.evolve(PLAN.sources["console"], idle_after=300_000_000)
    plan = attrs.evolve(PLAN, sources={**PLAN.sources, "console": console})
    text = "\n".join(why(history(waiting(), plan=plan)))
    assert "split 3, silent for 4m12s; idle_after=5m lets it pass in 48s" in text


def test_the_only_source_is_not_told_to_be_left_out():
    plan = RunDescription(
        "one", {"mobile": SourceDescription("Rows()", "MonotonousTimestamps()")}, {"n": stage(("mobile",))}
    )
    record = batch(0, 60, {"mobile": source_record(0, 10)}, {"n": stage_record(0, 0, {"mobile": 0})})
    text = "\n".join(why(history(record, plan=plan)))
    assert "silent for 50s; it is the only source, so windows stay open until it has new rows" in text


def test_idle_sources_are_named_and_the_others_followed():
    record = waiting(idle=True)
    sessions = stage_record(290, 290, {"console": 43, "mobile": 290}, idle=("console",))
    record = attrs.evolve(record, stages={"sessions": sessions, "average": sessions})
    text = told(record, stage="sessions")
    assert "stage `sessions` ignores `console`, idle now" in text
    assert "stage `sessions` waits for source `mobile`, which had elements in this batch" in text


def test_when_all_are_idle_it_says_that_the_watermark_stays():
    record = waiting(idle=True)
    sessions = stage_record(43, 43, {"console": 43, "mobile": 290}, idle=("console", "mobile"))
    record = attrs.evolve(record, stages={"sessions": sessions})
    assert "all that the stage reads is idle, so its watermark stays until one of them has new rows" in told(
        record, stage="sessions"
    )


@pytest.mark.parametrize(
    ("console", "expected"),
    [
        (
            {"awaited": "split 'us'", "split": None},
            "which has no watermark until split 'us' has had rows; silent for 4m12s",
        ),
        (
            {"dead_letters": 2},
            "source `console` has no watermark yet: 2 rows had no readable event time",
        ),
        (
            {"elements": 2},
            "has no watermark yet: BoundedOutOfOrderness(bound=5s) has had no element that gives one",
        ),
    ],
)
def test_a_source_without_a_watermark_says_what_it_lacks(console: dict[str, object], expected: str):
    record = waiting(watermark=MIN_TIME, **console)
    sessions = stage_record(MIN_TIME, MIN_TIME, {"console": MIN_TIME, "mobile": 290})
    text = told(attrs.evolve(record, stages={"sessions": sessions}), stage="sessions")
    assert "the output watermark of stage `sessions` is at the beginning of time" in text
    assert expected in text


def test_a_stage_that_nothing_has_come_to_is_followed_by_what_the_plan_says():
    text = told(attrs.evolve(waiting(), stages={}), stage="average")
    assert (
        "stage `average` waits for stage `sessions`, whose output watermark is at the beginning of time"
        in text
    )
    assert "source `console`, split 3" in text


def test_a_hold_by_earliest_is_named_with_what_would_change_it():
    lines = why(held_by_earliest(), stage="average")
    assert lines[3:5] == [
        "stage `sessions` holds its output watermark at 2026-01-31T12:00:05Z: key 7 in [2026-01-31T12:00:05Z, "
        "2026-01-31T12:03:05Z) has elements that wait for a pane, and a pane has the time of its earliest element "
        "(EARLIEST); END_OF_WINDOW would let it advance to the end of the window",
        "that window waits for the input watermark of stage `sessions` to reach 2026-01-31T12:03:05Z, which is at "
        "2026-01-31T12:02:00Z, 1m5s to go",
    ]
    assert lines[5] == "stage `sessions` waits for source `console`, which had elements in this batch"


def test_a_window_that_waits_for_its_trigger_or_lateness_says_so():
    plan = replanned(
        PLAN,
        average=stage(
            ("sessions",),
            lateness=60,
            trigger="Repeatedly(AfterCount(10))",
            fires_at_end=False,
            **TWO_MINUTES,
        ),
    )
    average = stage_record(130, 119, {"sessions": 130}, window=window(119, 0, 120))
    record = attrs.evolve(waiting(), stages={"average": average, "sessions": stage_record(130, 130)})
    text = "\n".join(why(history(record, plan=plan), stage="average"))
    assert (
        "that window is over, and later elements wait for its trigger Repeatedly(AfterCount(10)), or for the input "
        "watermark of stage `average` to reach 2026-01-31T12:03:00Z, which is at 2026-01-31T12:02:10Z, 50s to go"
    ) in text


def test_the_global_window_waits_for_the_end_of_input():
    plan = replanned(PLAN, average=stage(("sessions",), global_window=True, windows="GlobalWindows()"))
    average = stage_record(43, 43, {"sessions": 43}, window=window(43, MIN_TIME, GLOBAL_WINDOW_END))
    holder = attrs.evolve(window(43, 0, 1), start=MIN_TIME, end=GLOBAL_WINDOW_END)
    record = attrs.evolve(
        waiting(), stages={**waiting().stages, "average": attrs.evolve(average, window=holder)}
    )
    text = "\n".join(why(history(record, plan=plan), stage="average", window="2026-01-31"))
    assert (
        "the global window of stage `average` waits for the end of input, at which alone its trigger fires"
        in text
    )


def test_percentile_watermarks_that_the_trigger_looks_at_are_shown():
    average = stage(
        ("sessions",), clocks=("watermark", "percentile_66"),
        trigger="AfterWatermark(early=AfterWatermark(percentile=66))", **TWO_MINUTES,
    )  # fmt: skip
    record = waiting()
    sessions = attrs.evolve(record.stages["sessions"], percentiles={66: at(90)})
    record = attrs.evolve(record, stages={**record.stages, "sessions": sessions})
    text = "\n".join(why(history(record, plan=replanned(PLAN, average=average)), window="2026-01-31T12:00"))
    assert "43Z, 1m17s to go; its 66% watermark is at 2026-01-31T12:01:30Z" in text


def test_the_end_of_input_leaves_nothing_to_wait_for():
    end = stage_record(MAX_TIME, MAX_TIME)
    record = batch(9, 300, {}, {"sessions": end, "average": end})
    assert told(record) == "all stages are at the end of input: nothing waits any more"
    assert told(record, stage="average") == "stage `average` is at the end of input: nothing waits any more"


def test_a_run_that_is_over_says_how_its_open_windows_can_close():
    lines = why(history(waiting(), closed="ended"))
    assert lines[-1].startswith(
        "nothing moves until the run is resumed: with the same checkpoint and new input"
    )
    *_, last = why(history(waiting(), closed="failed"))
    assert last.endswith("is resumed: with the same checkpoint, from the batch in which it failed")


# Windows and keys


def test_a_window_that_is_not_over_says_how_far_that_is():
    lines = told(waiting(), stage="average", window="2026-01-31T12:00:00Z/2026-01-31T12:02:00Z").splitlines()
    assert lines[:2] == [
        "window [2026-01-31T12:00:00Z, 2026-01-31T12:02:00Z) of stage `average` is not over",
        "that window waits for the input watermark of stage `average` to reach 2026-01-31T12:02:00Z, which is at "
        "2026-01-31T12:00:43Z, 1m17s to go",
    ]
    assert "split 3" in lines[3]


def past(number: int, now: float, mark: float, **average: object) -> object:
    """Returns a batch after which the average's watermark is `mark`."""
    return batch(number, now, {}, {"average": stage_record(mark, mark, {"sessions": mark}, **average)})


def test_a_window_that_has_fired_says_when_and_with_which_panes():
    batches = [past(3, 100, 90), past(4, 130, 121, panes={"on_time": 2}), past(5, 140, 125)]
    assert told(*batches, stage="average", window="2026-01-31T12:01").splitlines() == [
        OVER
        + "the input watermark passed its end in batch 4, at 2026-01-31T12:02:10Z; in that batch the stage emitted "
        "2 on time panes, its own among them if it had elements",
        "it is closed since batch 4, at 2026-01-31T12:02:10Z: elements that arrive for it now are dropped as late",
    ]
    text = told(past(4, 130, 121), stage="average", window="2026-01-31T12:01")
    assert "in batch 4, at 2026-01-31T12:02:10Z, and no window fired there" in text


def test_a_window_that_still_takes_late_elements_says_until_when():
    plan = replanned(
        PLAN,
        average=stage(("sessions",), lateness=60, **TWO_MINUTES | {"allowed lateness": "1m"}),
    )
    record = attrs.evolve(waiting(), stages={"average": stage_record(140, 140, {"sessions": 140})})
    text = "\n".join(why(history(record, plan=plan), stage="average", window="2026-01-31T12:01"))
    assert (
        "it still accepts late elements, until the input watermark reaches 2026-01-31T12:03:00Z (allowed lateness 1m), "
        "which is at 2026-01-31T12:02:20Z, 40s to go"
    ) in text


def test_dropped_elements_are_told_with_the_reason():
    batches = [
        past(3, 100, 90, dropped={"late": 2}),
        past(4, 130, 121, dropped={"late": 1, "closed": 1}),
        past(5, 140, 125),
    ]
    text = told(*batches, stage="average", window="2026-01-31T12:01")
    assert text.endswith(
        "stage `average` has dropped 4 elements, the last in batch 4: 3 arrived later than the allowed lateness, 1 "
        "arrived after the trigger of their windows had finished"
    )


def test_the_key_that_holds_is_told_with_its_window():
    text = "\n".join(why(held_by_earliest(), key="7"))
    assert "stage `sessions` holds its output watermark at 2026-01-31T12:00:05Z: key 7 in" in text
    assert "average" not in text


def test_a_key_that_does_not_hold_is_told_who_does():
    text = "\n".join(why(held_by_earliest(), key="8"))
    assert (
        "key 8 is not what holds the output watermark of stage `sessions`; that is key 7 in [2026-01-31T12:00:05Z, "
        "2026-01-31T12:03:05Z)"
    ) in text
    assert (
        "its windows fire when the input watermark of stage `sessions` reaches their ends; it is at" in text
    )


def test_a_session_that_has_grown_since_is_found_by_its_key():
    text = "\n".join(why(held_by_earliest(), key="7", window="2026-01-31T12:01:40Z/2026-01-31T12:02:40Z"))
    assert "key 7 in [2026-01-31T12:00:05Z, 2026-01-31T12:03:05Z) of stage `sessions` is not over" in text
    assert "until then it holds the output watermark of stage `sessions` at 2026-01-31T12:00:05Z" in text
    text = "\n".join(why(held_by_earliest(), key="8", window="2026-01-31T12:01:40Z/2026-01-31T12:02:40Z"))
    assert "key 8 in [2026-01-31T12:01:40Z, 2026-01-31T12:02:40Z) of stage `sessions` is not over" in text


def test_an_unknown_stage_is_refused_with_the_nearest():
    with pytest.raises(UnknownStage) as error:
        why(history(waiting()), stage="avrage")
    assert str(error.value) == (
        "there is no stage 'avrage'; the stages are sessions, average; did you mean 'average'?"
    )
    with pytest.raises(UnknownStage, match="'console' is a source; the stages are sessions, average"):
        why(history(waiting()), stage="console")


def test_a_key_of_a_stage_without_keys_is_refused():
    with pytest.raises(UnknownWindow, match="stage `average` has no keys"):
        why(history(waiting()), stage="average", key="7")


# Runs


def test_a_run_says_of_itself_what_holds_it():
    p = bl.Pipeline("p")
    rows = bl.Rows([{"at": second, "user": 1} for second in (1, 40, 70)], rows_per_batch=1)
    read = p.read("rows", rows, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
    sessions = read.window_into(bl.Sessions("1m"), timestamp_combiner=bl.EARLIEST)
    sessions.group_by("user", name="sessions").aggregate(n=bl.count()).write("out", bl.Memory())
    plan = p.plan()
    batches = list(bl.LocalRunner().run(plan).batches)
    text = "\n".join(why(History(describe_run(plan), batches[:3])))
    assert "stage `sessions` holds its output watermark at 1970-01-01T00:00:01Z: key 1 in" in text
    assert "to reach 1970-01-01T00:02:10Z, which is at 1970-01-01T00:01:10Z, 1m to go" in text
    assert why(History(describe_run(plan), batches))[1].startswith("all stages are at the end of input")
