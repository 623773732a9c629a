"""The graph of a plan in the records of its runs."""

from __future__ import annotations

import beamlike as bl
from beamlike.plan.run_graph import describe_run
from beamlike.records.graph import RunDescription, Spacing
from stages.facts import from_json, to_json


def test_the_plan_of_a_pipeline_is_read_as_it_was_described() -> None:
    p = bl.Pipeline("p")
    rows = bl.Rows([{"at": 1, "user": 1}])
    read = p.read("rows", rows, timestamp="at", timestamp_unit="s", watermark=bl.BoundedOutOfOrderness("5s"))
    sessions = read.window_into(bl.Sessions("1m")).group_by("user", name="sessions").aggregate(n=bl.count())
    sliding = sessions.window_into(bl.SlidingWindows("2m", "30s"), allowed_lateness="1m")
    sliding.aggregate(mean=bl.mean("n")).named("average").write("out", bl.Memory())
    described = describe_run(p.plan())
    assert from_json(RunDescription, to_json(described)) == described
    assert described.sources["rows"].watermark == "BoundedOutOfOrderness(bound=5s)"
    assert described.stages["sessions"].keys == ("user",)
    assert described.stages["sessions"].spacing is None
    average = described.stages["average"]
    assert (average.inputs, average.aggregates) == (("sessions",), {"mean": "mean(n)"})
    assert (average.spacing, average.allowed_lateness) == (Spacing(120_000_000, 30_000_000, 0), 60_000_000)
    assert described.sinks["out"].inputs == ("average",)
