"""Simulated histories of runs, long and wide ones, for charts and reports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from beamlike.records.graph import (
    RunDescription,
    SinkDescription,
    SourceDescription,
    Spacing,
    StageDescription,
)
from beamlike.records.history import History
from beamlike.records.model import BatchRecord, SourceRecord, StageRecord, Upstream
from stages.state.index import HoldOwner
from windowing.time import MAX_TIME, MIN_TIME

SECOND = 1_000_000
MINUTE = 60 * SECOND
NOON = 1_767_268_800 * SECOND  # 2026-01-01T12:00:00Z
HARMFUL = "</script><script>alert('$x$')</script>"


def described(inputs: Iterable[str], level: int = 1, minutes: int | None = None) -> StageDescription:
    """Returns a stage of user sessions, or of fixed windows of `minutes`."""
    spacing = None if minutes is None else Spacing(minutes * MINUTE, minutes * MINUTE, 0)
    windows = "Sessions(gap=1m)" if minutes is None else f"FixedWindows(size={minutes}m)"
    choices = {"windows": windows, "trigger": "DefaultTrigger()", "timestamp": "end_of_window"}
    keys = ["user"] if minutes is None else []
    return StageDescription(
        inputs=inputs,
        level=level,
        keys=keys,
        aggregates={"n": "count()"},
        choices=choices,
        spacing=spacing,
        clocks=["watermark"],
    )


FLAGSHIP = RunDescription(
    "average-session-length",
    dict.fromkeys(
        ("console", "mobile"), SourceDescription('Parquet("plays")', "BoundedOutOfOrderness(bound=5s)")
    ),
    {
        "sessions of console": described(["console"]),
        "sessions of mobile": described(["mobile"]),
        "average": described(["sessions of console", "sessions of mobile"], 2, 2),
    },
    {"averages": SinkDescription(["average"], 'Parquet("out/averages")')},
)


def flagship(*, held: bool, start: int = NOON, batches: int = 60, ended: bool = True) -> History:
    """Returns a history of sessions of two platforms, averaged every two minutes.

    There is a batch every ten seconds; console is half a minute behind mobile. If `held`, an open session holds back
    the later stage. If `ended`, the last batch ends the sources.
    """
    history = History(FLAGSHIP, closed="ended" if ended else None)
    for number in range(batches):
        before = history.latest
        now = start + number * 10 * SECOND
        over = ended and number == batches - 1
        behind = {"console": 35 * SECOND, "mobile": 8 * SECOND}
        sources = {
            name: SourceRecord(
                MAX_TIME if over else MIN_TIME if number == 0 else now - lag - (number % 7) * SECOND,
                elements=200 + 40 * (number % 5),
                dead_letters=int(name == "mobile" and number % 9 == 4),
            )
            for name, lag in behind.items()
        }
        marks = {name: source.watermark for name, source in sources.items()}
        stages: dict[str, StageRecord] = {}
        for name in FLAGSHIP.stages:
            stages[name] = _stage(name, number, now, start, marks, held, before)
            marks[name] = stages[name].output
        record = BatchRecord(number, now, sources, stages, finished=now + SECOND, sinks={"averages": 1})
        history.add(record.following(before))
    return history


def _stage(
    name: str,
    number: int,
    now: int,
    start: int,
    marks: Mapping[str, int],
    held: bool,
    before: BatchRecord | None,
) -> StageRecord:
    plan = FLAGSHIP.stages[name]
    upstream = {one: Upstream(marks[one]) for one in plan.inputs}
    holder = min(upstream, key=lambda one: upstream[one].watermark)
    low = output = upstream[holder].watermark
    window = None
    if plan.level == 1 and held and MIN_TIME < low < MAX_TIME:
        # A session of three minutes is open, and then the next one.
        begun = low - (low - start) % (3 * MINUTE) - 20 * SECOND
        window = HoldOwner(begun, "4058", begun, begun + 4 * MINUTE)
        output, holder = begun, str(window)
    last = before.stages[name] if before is not None else None
    return StageRecord(
        low,
        max(output, last.output if last is not None else MIN_TIME),
        "nothing" if low == MAX_TIME else holder,
        elements=sum(one.watermark > MIN_TIME for one in upstream.values()) * 100,
        panes=_panes(plan.level, number, low, start, last),
        dropped={"late": 2} if plan.level == 2 and number % 13 == 12 else {},
        live=40 + number % 7,
        keys=30,
        bytes=4_096 + 64 * number,
        finished=now + (200 + 30 * (number % 4)) * 1_000 * plan.level,
        upstream=upstream,
        window=window,
    )


def _panes(level: int, number: int, low: int, start: int, last: StageRecord | None) -> dict[str, int]:
    if last is None or last.input == MIN_TIME:
        return {}
    if level == 1:
        return {"on_time": 3 + number % 4}
    crossed = (low - start) // (2 * MINUTE) - (last.input - start) // (2 * MINUTE)
    late = {"late": 1} if number % 17 == 16 else {}
    return {"on_time": 1, **late} if crossed else {"early": 1, **late} if number % 9 == 3 else late


def wide(*, each: int = 20, batches: int = 100, start: int = 0) -> History:
    """Returns a history of `each` sources, stages of all but one, and a stage that reads these; names need escaping."""
    sources = [f"source {number} {HARMFUL}" for number in range(each)]
    stages = {f"stage {number}": described([name]) for number, name in enumerate(sources[:-1])}
    stages["all"] = described(list(stages), 2, 10)
    reads = SourceDescription("Rows()", "MonotonousTimestamps()")
    history = History(RunDescription(f"wide {HARMFUL}", dict.fromkeys(sources, reads), stages))
    for number in range(batches):
        now = start + number * SECOND
        marks = {name: now - (2 * place + number % 5) * SECOND for place, name in enumerate(sources)}
        records: dict[str, StageRecord] = {}
        for name, stage in stages.items():
            upstream = {one: Upstream(marks[one]) for one in stage.inputs}
            holder = min(stage.inputs, key=lambda one: marks[one])
            panes = {"on_time": 1} if number % 50 == 49 else {}
            marks[name] = marks[holder] - (now // 7) % (40 * SECOND)
            records[name] = StageRecord(
                upstream[holder].watermark,
                marks[name],
                holder,
                elements=10,
                panes=panes,
                finished=now + 9_000,
                upstream=upstream,
            )
        read = {name: SourceRecord(marks[name], 10) for name in sources}
        history.add(BatchRecord(number, now, read, records))
    return history
