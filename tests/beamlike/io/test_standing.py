"""Sinks that replace rows by their key write the current rows and delete the others."""

from __future__ import annotations

import json

import polars as pl
import pytest

import beamlike as bl
from beamlike.io.sinks import RowKey, SinkInput, standing

KEY = RowKey(("k",), None, "back")


def changes(*rows: tuple[str | None, int, bool]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema={"k": pl.String, "v": pl.Int64, "back": pl.Boolean}, orient="row")


@pytest.mark.parametrize(
    ("rows", "written", "gone"),
    [
        ([("a", 1, False)], [("a", 1)], []),
        ([("a", 1, True), ("a", 2, False)], [("a", 2)], []),
        ([("a", 1, True)], [], ["a"]),
        ([("a", 1, False), ("a", 1, True)], [], ["a"]),
        ([("a", 1, True), ("a", 1, False)], [("a", 1)], []),
        ([("a", 1, True), ("a", 2, False), ("a", 2, True), ("b", 3, False)], [("b", 3)], ["a"]),
        ([(None, 1, True), (None, 2, False), ("a", 1, True)], [(None, 2)], ["a"]),
    ],
)
def test_a_batch_is_summed_up_by_key(
    rows: list[tuple[str | None, int, bool]], written: list[tuple[str | None, int]], gone: list[str]
) -> None:
    left = standing(changes(*rows), KEY)
    assert left.rows.select("k", "v").rows() == written
    assert left.gone["k"].to_list() == gone


def test_two_rows_of_a_key_that_stand_fail() -> None:
    with pytest.raises(ValueError, match=r"two rows have the same k: \('a',\); steps after the grouping"):
        standing(changes(("a", 1, False), ("a", 2, False)), KEY)


def sink(**choices: object) -> bl.KafkaSink:
    made = bl.KafkaSink("localhost:9092", "t", mode="upsert", **choices)  # type: ignore[arg-type]
    schema = pl.Schema({"k": pl.String(), "v": pl.Int64(), "back": pl.Boolean()})
    return made.fitted(SinkInput("out", schema, ("k", "v"), KEY))


def test_a_topic_gets_a_tombstone_for_a_key_of_which_nothing_stands() -> None:
    rows = changes(("a", 1, True), ("b", 1, True), ("b", 2, False))
    assert list(sink()._messages(rows)) == [(b"b", b'{"k":"b","v":2}'), (b"a", None)]
    assert list(sink(value=bl.json({"v": int}))._messages(rows)) == [(b"b", b'{"v":2}'), (b"a", None)]
    with pytest.raises(ValueError, match="'k' is null in a row"):
        list(sink()._messages(changes((None, 1, False))))


def test_the_key_of_messages_is_that_of_the_rows() -> None:
    with pytest.raises(bl.PlanError, match="the key must be 'k', which identifies the rows, and not 'v'"):
        sink(key="v")
    with pytest.raises(
        ValueError, match="mode may be 'append' or 'upsert', not 'upsrt'; did you mean 'upsert'"
    ):
        bl.KafkaSink("localhost:9092", "t", mode="upsrt")  # type: ignore[arg-type]


def test_a_grouping_with_windows_has_these_in_its_messages() -> None:
    p = bl.Pipeline("p")
    rows = bl.Rows([{"k": "a", "at": 1}])
    plays = p.read("plays", rows, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
    counts = plays.window_into(bl.FixedWindows("1m")).group_by("k").aggregate(n=bl.count())
    counts.write(
        "topic",
        bl.KafkaSink("localhost:9092", "t", mode="upsert"),
        columns=["k", "n", "window_start", "window_end"],
    )
    [write] = p.written()
    frame = pl.DataFrame({"k": ["a"], "n": [1], "window_start": [0], "window_end": [60], "pane_index": [0]})
    ((key, value),) = write.sink._messages(frame)  # type: ignore[union-attr]
    assert [list(json.loads(text)) for text in (key, value)] == [
        ["k", "window_start", "window_end"],
        ["k", "n", "window_start", "window_end"],
    ]
