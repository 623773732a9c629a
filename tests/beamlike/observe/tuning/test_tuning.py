"""The report of `tune`: its text, its notes, its ranges, and errors for unsuitable runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
import pytest
from click.testing import CliRunner

import beamlike as bl
from beamlike.cli.main import main
from beamlike.errors import UnknownName, ViewError
from beamlike.observe.tuning.predict import SourcePrediction
from beamlike.records.lines import RunBegun
from stages.progress import arrivals

SECOND = 1_000_000
BATCHES = [
    [("us", 0), ("eu", 2)],
    [("us", 70)],
    [("us", 55), ("eu", 65)],
    [("us", 130)],
    [("eu", 62)],
    [("us", 200)],
]


def pipeline(
    batches: Any = BATCHES, *, per_split: str | None = "region", unit: str = "s", name: str = "plays"
) -> bl.Pipeline:
    """Declares counts by minute, of which a second stage computes the mean."""
    stream = bl.TestStream({"region": str, "at": int})
    for rows in batches:
        stream = stream.add_elements([{"region": region, "at": at} for region, at in rows])
        stream = stream.advance_processing_time("10s")
    p = bl.Pipeline("p")
    strategy = bl.BoundedOutOfOrderness("5s", per_split=per_split, idle_after="1h")
    plays = p.read(name, stream, timestamp="at", timestamp_unit=unit, watermark=strategy)
    minutes = plays.window_into(bl.FixedWindows("1m"))
    counts = minutes.group_by("region").aggregate(n=bl.count()).named("counts")
    counts.aggregate(mean=bl.mean("n")).named("means").write("out", bl.Memory())
    return p


def tuned(folder: Path, *bounds: str, **options: Any) -> SourcePrediction:
    records = folder / "run.jsonl"
    pipeline(**options).run(bl.LocalRunner(records=records))
    (found,) = bl.observe.tune(records, bounds=bounds).sources
    return found


def test_the_text_has_the_counts_the_knee_the_splits_and_a_line_of_code(tmp_path: Path) -> None:
    records = tmp_path / "run.jsonl"
    pipeline().run(bl.LocalRunner(records=records))
    done = CliRunner().invoke(main, ["tune", str(records), "--bound", "3s"])
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert lines[0].startswith("source plays: 8 elements in 6 batches")
    assert [line.split()[0] for line in lines[3:]][:3] == ["0s", "1s", "2s"]
    assert any(line.startswith("Without per_split, nothing is late only with 1m8s") for line in lines)
    assert "    watermark=bl.BoundedOutOfOrderness(" in done.output
    assert ', per_split="region", idle_after="1h")' in done.output
    assert lines[-1].endswith("no known windows: means.")
    assert str(bl.observe.tune(records, bounds=["3s"])) == done.output.rstrip("\n")


def test_a_notebook_shows_tables_and_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    records = tmp_path / "run.jsonl"
    pipeline(name="<plays>").run(bl.LocalRunner(records=records))
    found = bl.observe.tune(records)
    page = found._repr_html_()
    assert "<table>" in page
    assert "&lt;plays&gt;" in page
    assert "<plays>" not in page
    assert "&lt;plays&gt;" in found.plot().svg()


def test_a_count_between_the_bounds_of_a_bucket_is_a_range(tmp_path: Path) -> None:
    """A batch has more distinct times than a histogram has buckets."""
    early = [("us", at) for at in range(0, 3 * 400, 3)]
    exact = [("us", 90_000_700), ("us", 90_001_000)]
    found = tuned(tmp_path, batches=[exact, early], per_split=None, unit="us")
    (none,) = [one for one in found.bounds if one.bound == 0]
    assert found.resolution > 0
    assert none.late.least <= 400 <= none.late.most
    bounds = tuned(tmp_path, "90s", batches=[exact, early], per_split=None, unit="us").bounds
    (near,) = [one for one in bounds if one.bound == 90 * SECOND]
    true = sum(at < 1_000 for _, at in early)
    assert near.late.least <= true <= near.late.most
    assert near.late.most - near.late.least <= 2


def test_large_batches_have_the_newest_times_of_their_splits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = tuned(tmp_path)
    monkeypatch.setattr(arrivals, "_MOST_ROWS", 1)
    found = tuned(tmp_path)
    assert found.bounds == exact.bounds
    assert found.splits == [] != exact.splits
    assert any("the needs of splits are not known" in note for note in found.notes)


def test_too_many_splits_are_one(tmp_path: Path) -> None:
    many = [(f"r{number}", 100 + number) for number in range(arrivals.MOST_SPLITS + 1)]
    found = tuned(tmp_path, batches=[many, [("r1", 50)]])
    assert found.elements == len(many) + 1
    assert found.unsplit is None
    assert any("there are too many" in note for note in found.notes)


def test_steps_that_drop_elements_make_counts_estimates(tmp_path: Path) -> None:
    p = bl.Pipeline("p")
    rows = bl.Rows([{"at": 1}, {"at": 90}, {"at": 2}], rows_per_batch=1)
    read = p.read("rows", rows, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
    kept = read.filter(bl.col("at") > 1).window_into(bl.FixedWindows("1m"))
    kept.aggregate(n=bl.count()).named("counts").write("out", bl.Memory())
    p.run(bl.LocalRunner(records=tmp_path / "run.jsonl"))
    (found,) = bl.observe.tune(tmp_path / "run.jsonl").sources
    assert [note for note in found.notes if "estimates" in note]


def test_a_record_of_several_batches_only_sets_the_watermark(tmp_path: Path) -> None:
    tuned(tmp_path)
    history = bl.observe.History.open(tmp_path / "run.jsonl")
    first, second, *others = history.batches
    history.batches = [first.then(second), *others]
    (found,) = bl.observe.tune(history).sources
    assert found.elements == 6
    assert found.notes[0].startswith("1 early records are of several batches")
    assert found.bounds[0].late.most == tuned(tmp_path).bounds[0].late.most


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    records = tmp_path / "run.jsonl"
    pipeline().run(bl.LocalRunner(records=records))
    with pytest.raises(UnknownName, match=r"there is no source 'play'; .* did you mean 'plays'"):
        bl.observe.tune(records, source="play")
    with pytest.raises(FileNotFoundError, match=r"run\.jsonl"):
        bl.observe.tune(tmp_path / "ran.jsonl")
    with pytest.raises(ValueError, match="a bound must not be negative, not '-1s'"):
        bl.observe.tune(records, bounds=["-1s"])


def test_records_without_event_times_are_refused(tmp_path: Path) -> None:
    tuned(tmp_path)
    history = bl.observe.History.open(tmp_path / "run.jsonl")
    history.batches = [
        attrs.evolve(
            one, sources={name: attrs.evolve(found, arrivals={}) for name, found in one.sources.items()}
        )
        for one in history.batches
    ]
    with pytest.raises(ViewError, match="the records have no event times of 'plays': an earlier version"):
        bl.observe.tune(history)
    history.batches.clear()
    with pytest.raises(ViewError, match="no records of batches yet"):
        bl.observe.tune(history)


def test_the_size_of_a_record_is_bounded(tmp_path: Path) -> None:
    spread = {
        f"r{number}": {
            "times": {"newest": 10**15 + 999, "level": 0, "buckets": [10**15 + 4 * at for at in range(250)]}
        }
        for number in range(arrivals.MOST_SPLITS)
    }
    for part in spread.values():
        part["times"]["counts"] = [1_000] * 250
    assert len(json.dumps(arrivals.to_record(spread), separators=(",", ":"))) < 8_000
    (one,) = arrivals.to_record({"": spread["r0"]}).values()
    assert arrivals.from_record({"": one}) == {"": spread["r0"]}


@pytest.mark.slow
@pytest.mark.spark
def test_the_prediction_is_the_same_on_spark(spark: Any, tmp_path: Path) -> None:
    local = tuned(tmp_path)
    checkpoint = tmp_path / "checkpoint"
    pipeline().run(bl.SparkRunner(checkpoint, session=spark, shards=2, drain=True))
    (found,) = bl.observe.tune(checkpoint).sources
    assert [(one.bound, one.late, one.dropped) for one in found.bounds] == [
        (one.bound, one.late, one.dropped) for one in local.bounds
    ]
    assert (found.needed, found.splits, found.elements) == (local.needed, local.splits, local.elements)


def test_silence_between_two_runs_does_not_make_a_source_idle(tmp_path: Path) -> None:
    """A split that is silent for an hour is idle, so its later elements are late, unless the run paused."""
    stream = [[("us", 0), ("eu", 0)], [("us", 70)], [("us", 140)], [("eu", 20)]]
    tuned(tmp_path, batches=stream)
    history = bl.observe.History.open(tmp_path / "run.jsonl")
    later = history.batches[4:]
    history.batches = [
        attrs.evolve(one, processing_time=one.processing_time + (3600 * SECOND if one in later else 0))
        for one in history.batches
    ]
    assert {one.late.most for one in bl.observe.tune(history).sources[0].bounds} != {0}
    history.take(RunBegun(history.plan))
    for one in history.batches[4:]:
        history.take(one)
    assert history.begun == {history.batches[0].batch, later[0].batch}
    assert {one.late.most for one in bl.observe.tune(history).sources[0].bounds} == {0}
