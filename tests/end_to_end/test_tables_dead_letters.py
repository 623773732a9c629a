"""Dead letters of the steps to a table are reported and counted once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import beamlike as bl
from beamlike.plan.route import apply_routes
from tests.end_to_end.test_tables import read


def with_a_bad_row(p: bl.Pipeline) -> bl.Collection:
    side = p.read("side", bl.Rows([{"key": "a", "s": "1"}, {"key": "b", "s": "x"}, {"key": "c", "s": "y"}]))
    numbers = side.map(
        lambda row: {"key": row["key"], "n": int(row["s"])}, {"key": str, "n": int}, name="made"
    )
    main = read(p, "main", bl.Rows([{"key": key, "at": 1, "n": 1} for key in "ab"]))
    found = main.select("key", other=bl.lookup(numbers, on="key")["n"])
    found.write("out", bl.Memory())
    return numbers


def test_dead_letters_of_steps_to_a_table_are_told_of_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with_a_bad_row(p := bl.Pipeline("p"))
    run = p.run()
    assert [dict(batch.dead_letters) for batch in run.batches] == [{"made": 2}, {}]
    letters = pl.concat(map(pl.read_ndjson, Path(run.dead_letters).glob("*.jsonl")))
    assert letters["step"].to_list() == ["made", "made"]
    with_a_bad_row(p := bl.Pipeline("p", max_dead_letters=1))
    with pytest.raises(bl.errors.TooManyDeadLetters):
        p.run()


def test_they_can_be_a_collection() -> None:
    numbers = with_a_bad_row(p := bl.Pipeline("p"))
    numbers.dead_letters().write("bad", out := bl.Memory())
    p.run()
    assert out.frame()["step"].to_list() == ["made", "made"]


@pytest.mark.slow
@pytest.mark.spark
def test_on_spark_they_are_counted_too(spark: Any, tmp_path: Path) -> None:
    with_a_bad_row(p := bl.Pipeline("p", max_dead_letters=1))
    with pytest.raises(bl.errors.TooManyDeadLetters):
        p.run(bl.SparkRunner(str(tmp_path / "checkpoint"), session=spark, shards=2))


def test_rows_of_a_table_are_delivered_nowhere_else() -> None:
    with_a_bad_row(p := bl.Pipeline("p"))
    routed = apply_routes(pl.DataFrame({"key": ["a", "b"], "s": ["1", "x"]}), p.plan().sources["side"].routes)
    assert routed.dead_letters.counts == {"made": 1}
    assert "made" not in routed.frames
