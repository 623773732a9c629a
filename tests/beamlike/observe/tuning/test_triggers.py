"""The prediction for a trigger equals a run with that trigger, or bounds it where keys are not recorded."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import attrs
import pytest
from click.testing import CliRunner
from hypothesis import assume, given
from hypothesis import strategies as st

import beamlike as bl
from beamlike.cli.main import main
from beamlike.errors import UnknownStage, ViewError
from beamlike.observe.tuning.panes import RETRACTED, StagePanes
from beamlike.observe.tuning.trigger_tuning import TriggerTuning
from beamlike.observe.tuning.triggers import StagePlay
from beamlike.records.emission import emission, emission_facts
from beamlike.records.history import History
from tests.support.examples import share
from windowing.windowing import Windowing

Batches = list[list[tuple[int, str]]]
WINDOWS = [
    bl.FixedWindows("10s"),
    bl.SlidingWindows("10s", "4s"),
    bl.Sessions("4s"),
    bl.CalendarWindows.days(),
    bl.GlobalWindows(),
]
SINGLE = [
    bl.AfterCount(1),
    bl.AfterCount(3),
    bl.AfterProcessingTime("15s"),
    bl.AfterAny(bl.AfterCount(2), bl.AfterProcessingTime("30s")),
]
TRIGGERS = [
    bl.DefaultTrigger(),
    bl.AfterWatermark(late=bl.AfterCount(2)),
    bl.Always(),
    bl.Never(),
    *(bl.AfterWatermark(early=one, late=bl.AfterCount(1)) for one in SINGLE),
    *(bl.Repeatedly(one) for one in SINGLE),
]
elements = st.lists(st.tuples(st.integers(0, 40), st.sampled_from("abc")), max_size=6)


@attrs.frozen
class Choice:
    """The options of a run."""

    windows: Any
    trigger: Any
    accumulation: str
    lateness: str
    on_time: str


choices = st.builds(
    Choice,
    st.sampled_from(WINDOWS),
    st.sampled_from(TRIGGERS),
    st.sampled_from(["discarding", "accumulating", "retracting"]),
    st.sampled_from(["0s", "5s"]),
    st.sampled_from(["always", "if_non_empty"]),
)


def run(batches: Batches, choice: Choice, records: Path, *, keyed: bool) -> Counter[str]:
    """Runs a count, and a second stage after it; in a batch without rows 20 s pass. Returns the panes by stage."""
    stream = bl.TestStream({"at": int, "user": str})
    for batch in batches:
        rows = [{"at": at, "user": user} for at, user in batch]
        stream = stream.add_elements(rows) if rows else stream.advance_processing_time("20s")
    p = bl.Pipeline("p")
    strategy = bl.BoundedOutOfOrderness("3s")
    read = p.read("rows", stream, timestamp="at", timestamp_unit="s", watermark=strategy)
    windowed = read.window_into(
        choice.windows,
        trigger=choice.trigger,
        accumulation=choice.accumulation,
        allowed_lateness=choice.lateness,
        on_time=choice.on_time,
    )
    if keyed:
        windowed.group_by("user", name="counts").aggregate(n=bl.count()).write("out", bl.Memory())
    else:
        counts = windowed.aggregate(n=bl.count()).named("counts")
        if choice.accumulation != "accumulating":
            wide = counts.window_into(bl.FixedWindows("30s"))
            wide.aggregate(n=bl.sum("n")).named("sums").write("wide", bl.Memory())
        counts.write("out", bl.Memory())
    found = Counter[str]()
    for record in p.run(bl.LocalRunner(records=records)).batches:
        for name, stage in record.stages.items():
            found.update({f"{name} {kind}": count for kind, count in stage.panes.items()})
    return found


def predicted(found: StagePanes, name: str) -> Counter[str]:
    counts = {**found.timings, RETRACTED: found.rows.most - found.panes.most}
    return +Counter({f"{name} {kind}": count for kind, count in counts.items()})


@share(6)
@given(st.lists(elements, min_size=1, max_size=8), choices, choices, st.booleans())
def test_a_prediction_equals_or_bounds_a_run_with_that_trigger(
    batches: Batches, choice: Choice, asked: Choice, keyed: bool
) -> None:
    assume(any(batches) and not (keyed and choice.windows.merging))
    other = attrs.evolve(choice, trigger=asked.trigger, accumulation=asked.accumulation)
    # A plan with a global window refuses triggers that only fire at its end.
    early = {*map(repr, TRIGGERS[4:])}
    one_window = isinstance(choice.windows, bl.GlobalWindows)
    assume(not one_window or {repr(choice.trigger), repr(other.trigger)} <= early)
    with tempfile.TemporaryDirectory() as folder:
        run(batches, choice, Path(folder) / "run.jsonl", keyed=keyed)
        history = History.open(Path(folder) / "run.jsonl")
        found = bl.observe.tune_triggers(
            history, stage="counts", triggers=[other.trigger], accumulation=asked.accumulation
        )
        panes = run(batches, other, Path(folder) / "other.jsonl", keyed=keyed)
    *_, one = found.predictions
    assert not found.notes
    if not keyed:
        # An accumulating run has no second stage here, as that would count elements again.
        chained = "accumulating" not in (choice.accumulation, other.accumulation)
        names = ["counts", "sums"] if chained else ["counts"]
        found_panes = {name: {k: v for k, v in panes.items() if k.startswith(name)} for name in names}
        assert {name: predicted(one.stages[name], name) for name in names} == found_panes
        return
    rows = sum(panes.values())
    first = rows - panes[f"counts {RETRACTED}"]
    counts = one.stages["counts"]
    assert counts.panes.least <= first <= counts.panes.most
    assert counts.rows.least <= rows <= counts.rows.most


@given(st.sampled_from([*TRIGGERS, bl.Repeatedly(bl.AfterCount(2)).or_finally(bl.AfterWatermark())]))
def test_a_trigger_is_read_from_a_record_as_it_was_declared(trigger: Any) -> None:
    windowing = Windowing(trigger=trigger, allow_data_loss=True)
    assert (emission(emission_facts(windowing)) or {})["trigger"] == trigger


BATCHES: Batches = [[(1, "a"), (2, "b")], [], [(3, "a"), (14, "b")], [(5, "a")], [(29, "a")]]
DEFAULT = Choice(bl.FixedWindows("10s"), bl.DefaultTrigger(), "discarding", "30s", "always")


def tuned(folder: Path, choice: Choice = DEFAULT, *, keyed: bool = False, **options: Any) -> TriggerTuning:
    run(BATCHES, choice, folder / "run.jsonl", keyed=keyed)
    return bl.observe.tune_triggers(folder / "run.jsonl", **options)


def test_the_command_prints_a_table_for_each_stage_of_a_chain(tmp_path: Path) -> None:
    early = "AfterWatermark(early=AfterCount(1), late=AfterCount(1))"
    found = tuned(tmp_path, triggers=[bl.AfterWatermark(early=bl.AfterCount(1), late=bl.AfterCount(1))])
    done = CliRunner().invoke(main, ["tune", str(tmp_path / "run.jsonl"), "--trigger", early])
    assert done.exit_code == 0, done.output
    assert done.output.rstrip("\n") == str(found)
    lines = done.output.splitlines()
    assert [line for line in lines if line.startswith("stage")] == [
        "stage counts, first with the trigger of the run:",
        "stage sums, first with the trigger of the run:",
    ]
    assert lines[2].split()[-8:] == ["3", "4", "1.33", "0", "3", "1", "4", "1"]
    assert lines[3].split()[-8:] == ["3", "8", "2.67", "4", "3", "1", "8", "5"]
    assert lines[-1] == "All counts are exact."
    assert "<th>per window</th>" in found._repr_html_()


def test_the_counts_of_a_stage_with_keys_are_said_to_be_bounds(tmp_path: Path) -> None:
    found = tuned(tmp_path, keyed=True, triggers=[bl.Always()], stage="counts")
    assert "The counts are bounds, since records have no keys and the stage has user;" in str(found)
    assert found.predictions[0].stages["counts"].panes.exact


def test_steps_that_change_elements_make_counts_estimates(tmp_path: Path) -> None:
    p = bl.Pipeline("p")
    rows = bl.Rows([{"at": 1}, {"at": 90}, {"at": 2}], rows_per_batch=1)
    read = p.read("rows", rows, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
    kept = read.filter(bl.col("at") > 1).window_into(bl.FixedWindows("1m"))
    kept.aggregate(n=bl.count()).named("counts").write("out", bl.Memory())
    p.run(bl.LocalRunner(records=tmp_path / "run.jsonl"))
    assert "Note: steps before it drop" in str(bl.observe.tune_triggers(tmp_path / "run.jsonl"))


def test_what_cannot_be_predicted_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ViewError, match="stage 'sums' reads the stage 'counts'"):
        tuned(tmp_path, stage="sums")
    with pytest.raises(ViewError, match=r"AfterCount\(2\) may lose data"):
        tuned(tmp_path, triggers=[bl.AfterCount(2)])
    with pytest.raises(UnknownStage, match=r"there is no stage 'count'.*did you mean 'counts'"):
        tuned(tmp_path, stage="count")
    early = bl.AfterWatermark(early=bl.AfterWatermark(percentile=90), late=bl.AfterCount(1))
    with pytest.raises(ViewError, match="records do not have the percentile watermarks"):
        tuned(tmp_path, triggers=[early])
    with pytest.raises(ViewError, match="sessions by key, which depend on keys"):
        tuned(tmp_path, attrs.evolve(DEFAULT, windows=bl.Sessions("4s")), keyed=True)
    history = History.open(tmp_path / "run.jsonl")
    old = attrs.evolve(history.plan.stages["counts"], emission={})
    history.plan = attrs.evolve(history.plan, stages={"counts": old})
    with pytest.raises(ViewError, match="an earlier version wrote them"):
        bl.observe.tune_triggers(history)
    done = CliRunner().invoke(main, ["tune", str(tmp_path / "run.jsonl"), "--trigger", "AfterCont(2)"])
    assert "there is no 'AfterCont'; did you mean 'AfterCount'?" in done.output
    both = ["tune", str(tmp_path / "run.jsonl"), "--stage", "counts", "--bound", "3s"]
    assert "leave them out with --stage" in CliRunner().invoke(main, both).output


def test_each_trigger_is_played_once_also_that_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played: list[Any] = []
    play = StagePlay._played

    def counted(one: StagePlay, windowing: Any) -> Any:
        played.append(windowing.trigger)
        return play(one, windowing)

    monkeypatch.setattr(StagePlay, "_played", counted)
    early = bl.AfterWatermark(early=bl.AfterCount(2), late=bl.AfterCount(1))
    assert tuned(tmp_path, triggers=[early]).notes == []
    assert played == [bl.DefaultTrigger(), early]
