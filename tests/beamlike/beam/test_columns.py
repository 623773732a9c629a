"""Parts of Beam pipelines in this package's own interface."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

beam = pytest.importorskip("apache_beam")

from apache_beam.testing.util import assert_that, equal_to  # noqa: E402

import beamlike as bl  # noqa: E402
from beamlike.beam import BeamlikeRunner  # noqa: E402
from beamlike.beam.columns import InColumns  # noqa: E402
from beamlike.observe import History  # noqa: E402
from tests.beamlike.beam.pipelines import pairs, see, seen, streaming, timed  # noqa: E402

PAIRS = {"key": str, "value": int}


def sums(rows: bl.Collection) -> bl.Collection:
    """Returns the sums of each key in ten seconds."""
    return rows.window_into(bl.FixedWindows("10s")).group_by("key").aggregate(total=bl.sum("value"))


def test_a_part_has_the_watermark_and_the_times_of_the_pipeline(tmp_path: Path) -> None:
    stream = pairs().add_elements([timed(1, "red", 1), timed(12, "red", 5), timed(2, "blue", 2)])
    stream = stream.advance_watermark_to(10).add_elements([timed(13, "red", 6), timed(3, "red", 9)])
    with streaming(records=tmp_path / "run.jsonl") as p:
        rows = p | stream.advance_watermark_to_infinity() | "sums" >> InColumns(sums, PAIRS)
        found = rows | beam.Map(
            lambda row, at=beam.DoFn.TimestampParam: (
                row["key"],
                row["total"],
                row["window_start"].second,
                float(at),
            )
        )
        # The element at 3 is late.
        assert_that(found, equal_to([("red", 1, 0, 9.999), ("blue", 2, 0, 9.999), ("red", 11, 10, 19.999)]))
    assert History.open(tmp_path / "run.jsonl").batches[-1].stages["sums"].output > 10**18


@pytest.mark.parametrize(
    ("elements", "schema"),
    [([{"n": 1}, {"n": 2}], {"n": int}), ([(1,), (2,)], {"n": int}), ([1, 2], {"n": int})],
    ids=["dicts", "tuples", "values"],
)
def test_elements_become_rows(elements: list[Any], schema: dict[str, Any]) -> None:
    with streaming() as p:
        doubled = InColumns(lambda rows: rows.select(twice=bl.col("n") * 2), schema)
        rows = p | beam.Create(elements) | doubled | beam.Map(lambda row: row["twice"])
        assert_that(rows, equal_to([2, 4]))


def test_the_state_of_a_part_is_in_the_checkpoint(tmp_path: Path) -> None:
    mark = tmp_path / "mark"

    def fail_once(element: Any) -> Any:
        if element[1] == 7 and not mark.exists():
            mark.touch()
            raise RuntimeError("away")
        return element

    def run() -> None:
        stream = pairs().advance_watermark_to(0)
        for n in range(10):
            stream = stream.add_elements([timed(n, "red", n)])
        with streaming(checkpoint=tmp_path / "checkpoint") as p:
            given = p | stream.advance_watermark_to_infinity() | "fail once" >> beam.Map(fail_once)
            given | InColumns(sums, PAIRS) | beam.Map(lambda row: row["total"]) | "see" >> beam.Map(see)

    seen.clear()
    with pytest.raises(RuntimeError, match="away"):
        run()
    run()
    assert seen == [sum(range(10))]


def test_an_element_that_a_step_cannot_use_fails_the_run() -> None:
    p = streaming()
    numbers = InColumns(
        lambda rows: rows.map(lambda row: {"n": int(row["text"])}, schema={"n": int}), {"text": str}
    )
    p | beam.Create(["1", "one"]) | "numbers" >> numbers
    with pytest.raises(
        RuntimeError, match=r"InColumns 'numbers': an element cannot be used .*invalid literal"
    ):
        p.run()


def test_an_invalid_part_is_refused_where_it_is_applied() -> None:
    p = streaming()
    numbers = p | beam.Create([1])
    with pytest.raises(bl.PlanError, match="'m'"):
        numbers | InColumns(lambda rows: rows.select("m"), {"n": int})
    with pytest.raises(TypeError, match="must return a collection, not 3"):
        numbers | "three" >> InColumns(lambda rows: 3, {"n": int})  # type: ignore[arg-type, return-value]


def test_a_part_is_refused_by_name_in_a_plan() -> None:
    p = beam.Pipeline(runner=BeamlikeRunner(spark=bl.LocalRunner(quiet=True)))
    p | beam.Create([1]) | "part" >> InColumns(lambda rows: rows, {"n": int})
    with pytest.raises(
        NotImplementedError, match="cannot run 'part': a part in columns needs BeamlikeRunner without"
    ):
        p.run()
