"""Every transcript passes on every runner, and mistakes in transcripts are found and reported."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import attrs
import pytest
from click.testing import CliRunner

import beamlike as bl
from beamlike.spec.constructors import BadConstructor, Refused, construct
from beamlike.testing.__main__ import main
from beamlike.testing.play import matching, play
from beamlike.testing.transcripts import Transcript, TranscriptError, load, parse
from tests.support.places import ROOT
from windowing.triggers.base import Trigger
from windowing.windows import WindowFn

FILES = sorted((ROOT / "tests" / "transcripts").glob("*.toml"))
ALL = [load(file) for file in FILES]

TEXT = """
name = "one of each"
unit = "us"

[windowing]
windows = "FixedWindows(10)"
trigger = "AfterWatermark(early=AfterCount(2), late=AfterCount(1))"
allowed_lateness = 20

[[step]]
elements = [1, { value = 7, at = 3 }]
panes = [{ window = [0, 10], values = [1, 7], timing = "early", index = 0 }]

[[step]]
watermark = 10
panes = [{ window = [0, 10], values = [], timing = "on_time" }]
watermarks = { input = 10, output = 10 }

[[step]]
watermark = 40

[[step]]
elements = [2]
dropped = { late = 1, closed = 0 }
"""


def _changed(before: str, after: str) -> Transcript:
    assert TEXT.count(before) == 1
    return parse(TEXT.replace(before, after), "file.toml")


def _told(transcript: Transcript, runner: str = "stage") -> str:
    (result,) = play([transcript], runner)
    assert result.status == "failed"
    assert str(result).startswith("failed one of each: ")
    return result.message


def _report(runner: str, transcripts: Sequence[Transcript] = ALL) -> str:
    return "\n".join(str(result) for result in play(transcripts, runner) if result.status == "failed")


@pytest.mark.parametrize("transcript", ALL, ids=[file.stem for file in FILES])
def test_every_transcript_passes_on_the_stage(transcript: Transcript) -> None:
    (result,) = play([transcript])
    assert result.status != "failed", result.message


def test_every_fourth_transcript_passes_on_the_local_runner() -> None:
    assert _report("local", ALL[::4]) == ""


@pytest.mark.slow
def test_every_transcript_passes_on_the_local_runner() -> None:
    assert _report("local") == ""


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_every_transcript_passes_on_spark() -> None:
    assert _report("spark") == ""


def test_names_are_told_apart() -> None:
    names = [transcript.name for transcript in ALL]
    assert sorted(set(names)) == sorted(names)


def test_every_trigger_and_kind_of_windows_has_a_transcript() -> None:
    texts = [file.read_text() for file in FILES]
    exported = [getattr(bl, name) for name in bl.__all__ if name != "SparkRunner"]
    classes = [value for value in exported if isinstance(value, type)]
    triggers = {value.__name__ for value in classes if issubclass(value, Trigger)} - {"OrFinally", "Trigger"}
    windows = {value.__name__ for value in classes if issubclass(value, WindowFn)} - {
        "CustomWindows",
        "WindowFn",
    }
    sessions = [text for text in texts if 'windows = "Sessions(' in text]
    for name in {*triggers, "or_finally"} - {"DefaultTrigger"}:
        assert any(f"{name}(" in text for text in texts if text not in sessions), name
        assert any(f"{name}(" in text for text in sessions), name
    for name in windows:
        assert any(f'windows = "{name}' in text for text in texts), name


@pytest.mark.parametrize("runner", ["stage", "local"])
def test_the_transcript_that_is_changed_below_passes(runner: str) -> None:
    assert [str(result) for result in play([parse(TEXT, "file.toml")], runner)] == ["ok one of each"]


@pytest.mark.parametrize("runner", ["stage", "local"])
def test_a_wrong_expectation_fails_and_shows_both_sides(runner: str) -> None:
    told = _told(_changed('timing = "early"', 'timing = "late"'), runner)
    assert told == (
        "step 1 (elements = [1, { value = 7, at = 3 }]): "
        'expected { window = [0, 10], values = [1, 7], timing = "late", index = 0 }, '
        'got { window = [0, 10], values = [1, 7], timing = "early", index = 0 }'
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("values = [1, 7]", "values = [1, 6]"),
        ("values = [1, 7]", "values = [1]"),
        ("window = [0, 10], values = [1", "window = [0, 11], values = [1"),
        ("index = 0 }]", "index = 1 }]"),
        ("index = 0 }]", "nonspeculative_index = 0 }]"),
        ("index = 0 }]", "first = false }]"),
        ("index = 0 }]", "last = true }]"),
        ("index = 0 }]", "retracted = true }]"),
        ("index = 0 }]", "timestamp = 8 }]"),
        ("index = 0 }]", 'key = "other" }]'),
    ],
)
def test_every_attribute_is_compared(before: str, after: str) -> None:
    assert "expected {" in _told(_changed(before, after))


def test_a_pane_that_does_not_come_fails() -> None:
    told = _told(_changed("watermark = 40", "watermark = 40\npanes = [{ values = [3], index = 2 }]"))
    assert told == "step 3 (watermark = 40): expected { values = [3], index = 2 }, got no pane"


@pytest.mark.parametrize("runner", ["stage", "local"])
def test_a_pane_that_is_left_over_fails(runner: str) -> None:
    told = _told(_changed('panes = [{ window = [0, 10], values = [], timing = "on_time" }]', ""), runner)
    assert told == (
        "step 2 (watermark = 10): expected no more panes, "
        'got { key = "k", window = [0, 10], values = [], timing = "on_time", index = 1 }'
    )


def test_a_pane_that_comes_once_is_not_expected_twice() -> None:
    pane = '{ window = [0, 10], values = [], timing = "on_time" }'
    assert _told(_changed(pane, f"{pane}, {pane}")).endswith("got no other pane")


def test_a_pane_that_is_described_loosely_leaves_the_others_to_those_that_need_them() -> None:
    came = [{"index": 0, "key": "a"}, {"index": 1, "key": "a"}]
    assert matching([{"key": "a"}, {"index": 0}], came) == {0: 1, 1: 0}
    assert matching([{"index": 0}, {"key": "a"}, {"index": 0}], came) == {0: 0, 1: 1}


@pytest.mark.parametrize("runner", ["stage", "local"])
def test_a_wrong_watermark_fails(runner: str) -> None:
    told = _told(_changed("input = 10, output = 10", "input = 10, output = 9"), runner)
    assert told == "step 2 (watermark = 10): expected the output watermark 9, got 10"


@pytest.mark.parametrize("runner", ["stage", "local"])
def test_a_wrong_count_of_dropped_elements_fails(runner: str) -> None:
    told = _told(_changed("late = 1, closed = 0", "late = 0, closed = 1"), runner)
    assert (
        told
        == "step 4 (elements = [2]): expected 0 dropped as late, got 1; expected 1 dropped as closed, got 0"
    )


def test_dropped_elements_that_a_step_does_not_count_may_be_any() -> None:
    (result,) = play([_changed("dropped = { late = 1, closed = 0 }", "")])
    assert result.status == "ok"


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ('name = "one', 'nam = "one', "a transcript has no 'nam'; it may have name, .*; did you mean 'name'"),
        ('unit = "us"', 'unit = "m"', "unit may be 'us', 'ms', 's', not 'm'"),
        ("allowed_lateness", "allowed_latenes", r"\[windowing\]: it has no .*did you mean 'allowed_lateness'"),
        ("index = 0", "indx = 0", r"step 1 \(elements .*: a pane has no 'indx'; .*; did you mean 'index'"),
        ('timing = "early"', 'timing = "erly"', "timing may be .*, not 'erly'; did you mean 'early'"),
        ("watermark = 40", "watermrk = 40", "step 3: a step has no 'watermrk'; .*; did you mean 'watermark'"),
        ("watermark = 40", "panes = []", "step 3: a step has one of elements, .*; it has none"),
        ("watermark = 40", "watermark = 40\nelements = [1]", "step 3: .*; not both elements and watermark"),
        ("watermark = 40", "watermark = 10", r"step 3 \(watermark = 10\): watermark goes forward only"),
        ("watermark = 40", 'watermark = "end"', "step 4 .*: nothing can follow the end of input"),
        ("watermark = 40", 'watermark = "End"', 'a watermark .or "end". is a number or a date-time'),
        ("watermark = 40", "processing_time = 0", "processing_time goes forward only"),
        ("input = 10,", "in = 10,", "watermarks has no 'in'; it may have input, output"),
        ("late = 1,", "lat = 1,", "dropped has no 'lat'; .*; did you mean 'late'"),
        ("value = 7, at", "value = 7, when", "an element has no 'when'"),
        ("value = 7, at = 3", "value = 7", "the element { value = 7 } has no 'at'"),
        ("values = [1, 7]", "value = 8", "a pane has no 'value'; .*; did you mean 'values'"),
        ("index = 0", "index = true", "index is a whole number, not True"),
        ("index = 0", "first = 1", "first is true or false, not 1"),
        ("window = [0, 10], values = [1", "window = 0, values = [1", "window is .*, not 0"),
        ("FixedWindows(10)", "FixedWindow(10)", "there is no 'FixedWindow'; did you mean 'FixedWindows'"),
        ("FixedWindows(10)", "FixedWindows(0)", r"\[windowing\]: windows: .*longer than nothing"),
        ("early=AfterCount(2)", "erly=AfterCount(2)", "takes no 'erly', .*; did you mean 'early'"),
        ("AfterCount(2)", "AfterCount(2", "is not Python"),
        ("AfterCount(2)", "(lambda: 2)()", "cannot be called"),
        ('name = "one', 'error = "x"\nname = "one', "either steps .* or an error"),
        ('name = "one', "name = one", "file.toml: "),
        ("elements = [1,", "elements = [nan,", r"step 1 \(elements .*: an element: nan lies outside of time"),
        ("at = 3", "at = inf", "step 1 .*: at: inf lies outside of time"),
        ("window = [0, 10], values = [1", "window = [0, 1e300], values = [1", "step 1 .*bound.*: 1e.300 lies"),
        ("index = 0 }]", "timestamp = -1e300 }]", "step 1 .*timestamp: -1e.300 lies outside of time"),
        ("input = 10,", f"input = {10**30},", "step 2 .*watermarks.input: 10+ lies outside of time"),
        ("watermark = 40", "watermark = nan", "step 3 .*: a watermark .*: nan lies outside of time"),
        ("watermark = 40", "processing_time = 1e300", "step 3 .*: processing_time: 1e.300 lies outside"),
        ("allowed_lateness = 20", "allowed_lateness = inf", r"\[windowing\]: allowed_lateness: inf lies"),
        ("allowed_lateness = 20", "allowed_lateness = -1", r"\[windowing\]: allowed_lateness must be .*-1us"),
        ("allowed_lateness = 20", "allowed_lateness = '2x'", r"\[windowing\]: allowed_lateness: not a duration"),
        ("FixedWindows(10)", "FixedWindows(1e300)", r"\[windowing\]: windows: .*1e.300 lies outside of time"),
        ("FixedWindows(10)", "FixedWindows('\\u0000')", "is not Python"),
        ("FixedWindows(10)", "bl.FixedWindows(10)", "leave out 'bl.' and write 'FixedWindows'"),
        ("AfterCount(2)", "beamlike.AfterCount(2)", "leave out 'beamlike.' and write 'AfterCount'"),
        ("allowed_lateness", 'accumulation = "acumulating"\nallowed_lateness', "did you mean 'accumulating'"),
        ("allowed_lateness", 'timestamp_combiner = "ltest"\nallowed_lateness', "did you mean 'latest'"),
        ("allowed_lateness", 'on_time = "alway"\nallowed_lateness', "on_time .*did you mean 'always'"),
        ("allowed_lateness", 'closing = "non_empty"\nallowed_lateness', "closing .*did you mean 'if_non_empty'"),
    ],
)  # fmt: skip
def test_what_is_misspelt_or_missing_is_an_error_that_names_the_place(
    before: str, after: str, told: str
) -> None:
    with pytest.raises(TranscriptError, match=f"^file.toml: .*{told}" if told != "file.toml: " else told):
        _changed(before, after)


def test_a_transcript_has_steps_or_the_text_of_an_error() -> None:
    windowing = '[windowing]\nwindows = "FixedWindows(10)"'
    for line, told in (
        ("step = []", "a transcript has steps .*, not step = "),
        ('error = " "', "error is a part of"),
    ):
        with pytest.raises(TranscriptError, match=f"^file.toml: {told}"):
            parse(f'name = "none"\n{line}\n{windowing}', "file.toml")


@pytest.mark.parametrize("runner", ["stage", "local"])
def test_what_a_plan_refuses_is_refused_on_every_runner(runner: str) -> None:
    told = _told(
        _changed("AfterWatermark(early=AfterCount(2)", "AfterWatermark(early=AfterWatermark(percentile=66)"),
        runner,
    )
    assert "AfterWatermark(percentile=66) waits for a watermark" in told


def test_bare_numbers_that_are_durations_are_in_the_unit_and_counts_are_not() -> None:
    trigger = construct("AfterAny(AfterCount(2), AfterProcessingTime(3, align_to=60))", Trigger, 1_000)
    assert trigger == bl.AfterAny(bl.AfterCount(2), bl.AfterProcessingTime("3ms", align_to="60ms"))
    assert construct("FixedWindows('1m', offset=-2)", WindowFn, 1_000) == bl.FixedWindows("1m", offset="-2ms")
    assert construct("AfterWatermark(percentile=66)", Trigger, 1_000) == bl.AfterWatermark(percentile=66)
    assert construct("Repeatedly(AfterCount(2)).or_finally(Never())", Trigger, 1) == bl.Repeatedly(
        bl.AfterCount(2)
    ).or_finally(bl.Never())
    assert construct("CalendarWindows.days(2)", WindowFn, 1_000) == bl.CalendarWindows.days(2)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').getcwd()", "FixedWindows.__init__(1)", "FixedWindows(10).assign(1)", "[].append(1)",
        "FixedWindows(*[10])", "FixedWindows(size=open('x'))", "x", "10", "AfterCount(1)", "SparkRunner()",
        "FixedWindows(10) if 1 else 2", "CustomWindows()",
    ],
)  # fmt: skip
def test_nothing_but_constructors_is_evaluated(text: str) -> None:
    with pytest.raises(BadConstructor):
        construct(text, WindowFn, 1)


def test_a_constructor_that_refuses_its_arguments_is_told_apart() -> None:
    with pytest.raises(Refused, match="at least 1"):
        construct("AfterCount(0)", Trigger, 1)


ERROR = """
name = "one of each"
error = "may lose data"

[windowing]
windows = "FixedWindows(10)"
trigger = "AfterCount(2)"
"""


def test_an_expected_refusal_that_does_not_come_fails() -> None:
    safe = parse(ERROR.replace("AfterCount(2)", "Repeatedly(AfterCount(2))"), "file.toml")
    assert _told(safe) == "expected to be refused with 'may lose data', but it was not refused"


def test_a_refusal_with_another_message_fails() -> None:
    told = _told(parse(ERROR.replace("may lose", "will lose"), "file.toml"))
    assert told.startswith("expected to be refused with 'will lose data', got ")
    assert "may lose data" in told


@pytest.mark.parametrize("runner", ["stage", "local"])
def test_a_gap_is_declared_and_fails_when_it_closes(runner: str) -> None:
    wrong = _changed('timing = "early"', 'timing = "late"')
    gap = attrs.evolve(wrong, unsupported={runner: "for the test"})
    closed = attrs.evolve(parse(TEXT, "file.toml"), unsupported={runner: "for the test"})
    other = attrs.evolve(wrong, unsupported={"spark_batch": "for the test"})
    results = [str(result).partition(" (elements")[0] for result in play([gap, closed, other], runner)]
    assert results == [
        "unsupported one of each: for the test",
        f"failed one of each: it is declared unsupported on {runner} (for the test), but it passes now",
        "failed one of each: step 1",
    ]


def test_a_transcript_that_cannot_be_run_does_not_spoil_the_others() -> None:
    good = parse(TEXT, "file.toml")
    bad = attrs.evolve(good, choices={**good.choices, "trigger": bl.AfterCount(2)})
    results = play([good, bad, good], "local")
    assert [result.status for result in results] == ["ok", "failed", "ok"]
    assert "may lose data" in results[1].message


def test_the_last_step_need_not_be_the_end() -> None:
    text = TEXT[: TEXT.index("[[step]]\nwatermark = 10")].replace('"FixedWindows(10)"', '"GlobalWindows()"')
    steps = text.replace("panes = [", "# ").replace('trigger = "', '# "')
    results = [play([parse(steps, "file.toml")], runner)[0] for runner in ("stage", "local")]
    assert [result.message for result in results] == ["", ""]


def test_the_command_prints_a_line_for_each_file(tmp_path: Path) -> None:
    texts = {"good": TEXT, "wrong": TEXT.replace('"early"', '"late"'), "broken": TEXT.replace("unit", "unt")}
    for name, text in texts.items():
        (tmp_path / f"{name}.toml").write_text(text)
    files = [str(tmp_path / f"{name}.toml") for name in texts]
    for runner in ("stage", "local"):
        ran = CliRunner().invoke(main, [*files, "--runner", runner])
        assert ran.exit_code == 1
        good, wrong, broken = ran.output.splitlines()
        assert good == "ok one of each"
        assert wrong.startswith(
            "failed one of each: step 1 (elements = [1, { value = 7, at = 3 }]): expected {"
        )
        assert broken.startswith(f"failed {files[2]}: a transcript has no 'unt'")
    assert CliRunner().invoke(main, files[:1]).exit_code == 0


def test_a_file_that_cannot_be_read_is_a_line_and_the_others_play(tmp_path: Path) -> None:
    contents = {
        "good": TEXT.encode(), "latin": b'name = "\xe9"', "table": b"[", "deep": b"a = " + b"[" * 9999,
        "long": b"a = " + b"1" * 9999,
    }  # fmt: skip
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    files = [str(tmp_path / name) for name in (*contents, "missing", "")]
    ran = CliRunner().invoke(main, files)
    assert ran.exit_code == 1
    good, *others = ran.output.splitlines()
    assert good == "ok one of each"
    for line, file in zip(others, files[1:], strict=True):
        assert line.startswith(f"failed {file}: ")
    assert "a transcript is UTF-8, unlike byte 8" in others[0]
    assert others[4].endswith("missing: No such file or directory")
