"""Pipelines of Apache Beam, whose own types are not checked here: it may not be installed."""

# pyright: strict

from __future__ import annotations

from pathlib import Path
from typing import Any, assert_type

import beamlike as bl
from beamlike.beam import BeamlikeRunner, Read, plan
from beamlike.beam.columns import InColumns
from beamlike.beam.kafka import ReadFromKafka, WriteToKafka
from beamlike.plan.model import Plan


def runners(pipeline: Any, folder: Path) -> list[BeamlikeRunner]:
    assert_type(plan(pipeline), Plan)
    bl.savepoint.restore(folder / "savepoint", folder / "checkpoint", plan(pipeline), runner="local")
    return [
        BeamlikeRunner(),
        BeamlikeRunner(records=folder / "records.jsonl", checkpoint="checkpoint"),
        BeamlikeRunner(spark=bl.SparkRunner(checkpoint="checkpoint", trigger="10 seconds")),
        BeamlikeRunner(spark=bl.LocalRunner()),
    ]


def by_minute(plays: bl.Collection) -> bl.Collection:
    return plays.window_into(bl.FixedWindows("1m")).group_by("user").aggregate(points=bl.sum("points"))


def transforms() -> list[object]:
    plays = bl.JSONLines("plays/*.jsonl", schema={"user": str, "points": int, "at": str})
    settings = {"bootstrap.servers": "localhost:9092"}
    return [
        Read(plays, timestamp="at", watermark=bl.BoundedOutOfOrderness("5s")),
        InColumns(by_minute, {"user": str, "points": int}),
        ReadFromKafka(settings, ["plays"], timestamp_policy="CreateTime", max_num_records=10),
        WriteToKafka(settings, "totals"),
    ]
