"""Random pipelines over random input: every error has a name, every row is accounted for, also on Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import beamlike as bl
from beamlike.io.base import Part, output_frame
from beamlike.records.model import BatchRecord
from stages.errors import StepError
from tests.support.examples import share
from tests.support.fuzz import Case, as_texts, cases, counts
from tests.support.shards import Query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True, scope="module")
def _in_a_folder_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("fuzz"))
        yield


def _sums_fit(case: Case) -> bool:
    return case.sums_fit


def check(case: Case, name: str, sinks: Mapping[str, bl.Memory], records: Iterable[BatchRecord]) -> None:
    """Checks that elements in = elements in panes + dropped + dead letters, for each element and in the records."""
    records = list(records)
    check_source(case, name, sinks, records)
    check_first(case, name, sinks, records)
    check_second(case, name, sinks, records)


def check_source(case: Case, name: str, sinks: Mapping[str, bl.Memory], records: list[BatchRecord]) -> None:
    sources = [record.sources[f"{name} rows"] for record in records]
    given, bad = len(list(case.rows())), sum(map(case.bad, case.rows()))
    assert sum(source.read or 0 for source in sources) == given
    assert sum(source.dead_letters for source in sources) == bad == len(sinks["letters"].rows())
    assert sum(source.elements for source in sources) == given - bad


def check_first(case: Case, name: str, sinks: Mapping[str, bl.Memory], records: list[BatchRecord]) -> None:
    ids, letters = case.elements()
    stages = [record.stages[f"{name} first"] for record in records]
    assert letters_of(records, f"{name} before") == letters
    assert sum(stage.elements for stage in stages) == ids.total()
    dropped = counts(sinks["late"], "id")
    assert sum(sum(stage.dropped.values()) for stage in stages) == dropped.total()
    check_identity(stages)
    assert stages[-1].live == 0
    pairs = case.pairs()
    assert sum(stage.placed for stage in stages) == pairs.total()
    if case.exact:
        assert pairs_in(sinks) == pairs


def check_second(case: Case, name: str, sinks: Mapping[str, bl.Memory], records: list[BatchRecord]) -> None:
    ids, letters = case.again(sinks["panes"].rows())
    stages = [record.stages[f"{name} second"] for record in records]
    assert letters_of(records, f"{name} between") == letters
    assert sum(stage.elements for stage in stages) == ids.total()
    check_identity(stages)


def letters_of(records: Iterable[BatchRecord], steps: str) -> int:
    """Returns the number of dead letters of the steps whose names begin with `steps`."""
    return sum(
        count for record in records for step, count in record.dead_letters.items() if step.startswith(steps)
    )


def check_identity(stages: Iterable[Any]) -> None:
    """Checks in each batch: elements pending before and placed are in panes, dropped or pending."""
    before = 0
    for stage in stages:
        assert before + stage.placed == stage.emitted + sum(stage.dropped.values()) + stage.pending
        before = stage.pending
    assert before == 0


@settings(
    share(2),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(cases())
def test_every_row_of_a_random_pipeline_is_accounted_for(case: Case) -> None:
    pipeline = bl.Pipeline("fuzz", max_dead_letters=1_000)
    sinks = case.declare(pipeline, "p")
    failure = None
    try:
        run = pipeline.run()
    except StepError as error:
        failure = error
    if failure is None:
        check(case, "p", sinks, run.batches)
    else:
        assert (case.sums_fit, failure.step) == (False, "p first")
        assert "which Int64 cannot hold" in str(failure)


@settings(
    share(5),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(cases().filter(_sums_fit), st.integers(1, 4), st.integers(0, 99))
def test_shards_account_for_the_same_rows(case: Case, shards: int, seed: int) -> None:
    pipeline = bl.Pipeline("fuzz", max_dead_letters=1_000)
    sinks = case.declare(pipeline, "p")
    stages = play(Query(pipeline.plan(), shards, seed=seed), sinks)
    for records in stages.values():
        check_identity(records)
    if case.exact and stages["p first"]:
        assert pairs_in(sinks) == case.pairs()
    alone = bl.Pipeline("fuzz", max_dead_letters=1_000)
    local = case.declare(alone, "p")
    alone.run()
    assert as_texts(sinks) == as_texts(local)


def play(query: Query, sinks: Mapping[str, bl.Memory]) -> dict[str, list[Any]]:
    """Runs the query into the sinks and returns the records of each stage."""
    stages: dict[str, list[Any]] = {"p first": [], "p second": []}
    for number, batch in enumerate(query.batches()):
        for what, sink in sinks.items():
            schema = query.plan.sinks[f"p {what}"].schema
            frames = [pl.DataFrame(schema=schema), *batch.frames(f"p {what}")]
            sink.write(output_frame(pl.concat(frames)), Part("p", number))
        for name, record in batch.stages().items():
            stages[name].append(record)
    return stages


def pairs_in(sinks: Mapping[str, bl.Memory]) -> Counter[int]:
    """Returns how often each id is in a pane or was dropped."""
    return counts(sinks["panes"], "ids") + counts(sinks["late"], "id")


def drawn(count: int) -> list[Case]:
    """Returns `count` random cases, the same each time."""
    found: list[Case] = []

    @settings(
        max_examples=count, derandomize=True, database=None, deadline=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(cases().filter(lambda case: case.sums_fit and len(list(case.rows())) > 5))
    def draw(case: Case) -> None:
        found.append(case)

    draw()
    return found


@pytest.mark.slow
@pytest.mark.spark
def test_spark_accounts_for_the_same_rows_in_the_same_way(spark: SparkSession, tmp_path: Path) -> None:
    random = drawn(12)
    ours, theirs = bl.Pipeline("fuzz", max_dead_letters=1_000), bl.Pipeline("fuzz", max_dead_letters=1_000)
    local = [case.declare(ours, str(number)) for number, case in enumerate(random)]
    ours.run()
    spread = [case.declare(theirs, str(number)) for number, case in enumerate(random)]
    runner = bl.SparkRunner(session=spark, checkpoint=str(tmp_path / "checkpoint"), drain=True, shards=3)
    run = theirs.run(runner)
    for number, case in enumerate(random):
        assert as_texts(spread[number]) == as_texts(local[number]), (number, case)
        check(case, str(number), spread[number], run.batches)
    assert sum(len(sinks["panes"].rows()) > 0 for sinks in local) > 6
