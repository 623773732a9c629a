"""Watermarks of several sources or stages together: those that hold the minimum, and those that are waited for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stages.facts import from_json, to_json
from stages.progress.reports import Report, least, must_wait
from windowing.time import MAX_TIME, MIN_TIME

times = st.integers(-20, 20) | st.sampled_from([MIN_TIME, MAX_TIME])
reports = st.builds(
    lambda watermark, ahead, idle: Report(
        watermark, {share: max(watermark, time) for share, time in ahead.items()}, idle
    ),
    times,
    st.dictionaries(st.sampled_from([33, 66]), times),
    st.booleans(),
)


def test_the_least_of_those_that_are_not_idle() -> None:
    assert least([Report(5), Report(3, idle=True), Report(7)]) == Report(5)
    assert least([Report(5, {33: 9}), Report(7, {33: 8, 66: 7})]) == Report(5, {33: 8, 66: 5})


def test_if_all_are_idle_so_is_the_whole_where_the_least_of_them_is() -> None:
    assert least([Report(5, idle=True), Report(7, idle=True)]) == Report(5, idle=True)


def test_nothing_has_ended_while_one_that_is_idle_may_still_speak() -> None:
    ended = Report(MAX_TIME)
    assert least([ended, Report(5, idle=True)]) == Report(5, idle=True)
    assert least([ended, Report(5, idle=True), Report(6)]) == Report(6)
    assert least([ended, ended]) == least([]) == ended


@given(reports)
def test_a_report_travels_as_json(report: Report) -> None:
    assert from_json(Report, to_json(report)) == report


@given(st.lists(reports), st.lists(reports), st.lists(reports))
def test_it_is_associative_commutative_and_idempotent(
    one: list[Report], two: list[Report], three: list[Report]
) -> None:
    whole = least([*one, *two, *three])
    assert least([least([*one, *two]), least(three)]) == whole
    assert least([least(one), least([*two, *three])]) == whole
    assert least([*three, *two, *one]) == whole
    assert least([*one, *two, *three, *one]) == whole


@given(st.lists(reports))
def test_percentiles_are_not_behind_the_watermark(known: list[Report]) -> None:
    whole = least(known)
    assert all(time >= whole.watermark for time in whole.percentiles.values())


def test_who_is_ahead_waits_for_the_slowest() -> None:
    sources = {"fast": Report(100), "near": Report(60), "slow": Report(50)}
    drifts = dict.fromkeys(sources, 10)
    assert must_wait(sources, drifts) == {"fast"}
    assert must_wait(sources, {"fast": None}) == frozenset()
    assert must_wait(sources, {"fast": 50}) == frozenset()


def test_who_is_idle_or_at_the_end_is_waited_for_by_nobody() -> None:
    sources = {"fast": Report(100), "idle": Report(5, idle=True), "ended": Report(MAX_TIME)}
    assert must_wait(sources, dict.fromkeys(sources, 10)) == frozenset()
    assert must_wait({**sources, "silent": Report()}, dict.fromkeys(sources, 10)) == {"fast"}


@given(st.dictionaries(st.sampled_from("abcd"), reports), st.integers(1, 30))
def test_somebody_always_goes_on(sources: dict[str, Report], drift: int) -> None:
    waiting = must_wait(sources, dict.fromkeys(sources, drift))
    going = {name for name, report in sources.items() if not report.idle and report.watermark < MAX_TIME}
    assert waiting < going or not going
