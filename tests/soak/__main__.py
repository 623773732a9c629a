"""`python -m tests.soak --minutes 30`: feeds a pipeline on Spark, and checks that nothing grows or is lost.

`--hours 8` runs over the input of eight hours, a batch every ten seconds of a simulated clock, at full speed.

All files are under build/soak/: input, checkpoint, output, the report of the run, and soak.svg, the series as pictures.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl

import beamlike as bl
from beamlike.observe.report import write_report
from beamlike.observe.totals import Total, totals
from beamlike.records.history import History
from beamlike.records.model import BatchRecord
from beamlike.records.writer import MOST_BYTES, RECORDS_FILE
from tests.soak.feed import STEP, Feed
from tests.soak.job import pipeline
from tests.soak.measure import Measure

_CONFIG = {
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    # The number of batches that are kept; by default a hundred, so that the number of files would grow for long.
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.streaming.stateStore.maintenanceInterval": "10s",
    "spark.sql.streaming.fileSource.log.cleanupDelay": "10s",
}
SPARK: dict[str, Any] = {"master": "local[2]", "config": _CONFIG}


def main() -> int:
    """Prints all faults; returns 0 if there is none."""
    parser = argparse.ArgumentParser(prog="soak", description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--minutes", type=float, default=30.0, help="how long (default: 30)")
    parser.add_argument("--hours", type=float, help="of a simulated clock instead")
    parser.add_argument("--folder", type=Path, default=Path("build/soak"), help="where (default: build/soak)")
    given = parser.parse_args()
    folder = given.folder.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    feed, measure = Feed(folder), Measure(folder)
    if given.hours is None:
        run_for(given.minutes * 60, folder, feed, measure)
    else:
        run_through(round(given.hours * 3600 / STEP), folder, feed, measure)
    measure.draw(folder / "soak.svg")
    history = History.open(folder / "checkpoint")
    write_report(history, folder / "report.html")
    wrong = [*measure.complaints(), *unaccounted(folder, feed, history)]
    for line in wrong or ["nothing grew, and every row is accounted for"]:
        print(line)
    print(f"{feed.files:,} files, {feed.rows.total():,} rows, {len(measure.times):,} batches; see {folder}")
    return 1 if wrong else 0


def run_for(seconds: float, folder: Path, feed: Feed, measure: Measure) -> None:
    """Runs while the feed writes, then reads the rest and closes all windows."""
    read = Counter[str]()
    checkpoint = str(folder / "checkpoint")
    observe = observer(measure, read)
    runner = bl.SparkRunner(checkpoint=checkpoint, trigger="1 second", shards=2, on_batch=observe, **SPARK)
    run = runner.start(pipeline(folder).plan())
    feed.start()
    try:
        time.sleep(seconds)
        feed.stop()
        deadline = time.monotonic() + 300
        while read != feed.rows and time.monotonic() < deadline:
            time.sleep(1)
    finally:
        run.stop()
    pipeline(folder).run(bl.SparkRunner(checkpoint=checkpoint, drain=True, **SPARK))


def run_through(batches: int, folder: Path, feed: Feed, measure: Measure) -> None:
    """Runs over existing input, then closes all windows."""
    feed.simulate(batches)
    checkpoint = str(folder / "checkpoint")
    observe = observer(measure, Counter())
    job = pipeline(folder, max_files_per_trigger=1)
    job.run(bl.SparkRunner(checkpoint=checkpoint, drain=True, shards=2, on_batch=observe, **SPARK))


def observer(measure: Measure, read: Counter[str]) -> Callable[[BatchRecord], None]:
    """Returns a function that samples each batch, counts its rows, and prints the progress."""

    def after(record: BatchRecord) -> None:
        read.update({name: source.read or 0 for name, source in record.sources.items()})
        measure.take(record)
        passed = measure.times[-1]
        print(
            f"\r{passed / 60:5.1f} min, batch {record.batch}, {read.total():,} rows ", end="", file=sys.stderr
        )

    return after


def unaccounted(folder: Path, feed: Feed, history: History) -> Iterator[str]:
    """Yields differences between input and output, dropped rows and dead letters, in the records and the files."""
    total = totals(history)
    for name in ("mobile", "web"):
        source = total[name]
        if source.read != feed.rows[name]:
            yield f"{name}: {feed.rows[name]:,} rows were written, {source.read:,} read"
        if source.read != source.elements + source.dead_letters + source.filtered:
            yield f"{name}: {source.read:,} read, but {source}"
    yield from _stages(total)
    panes = pl.read_parquet(folder / "panes" / "**" / "*.parquet")
    sums = pl.read_parquet(folder / "sums" / "**" / "*.parquet")
    if panes["n"].sum() != total["sessions"].emitted:
        yield f"panes hold {panes['n'].sum():,} elements, {total['sessions'].emitted:,} were emitted"
    if sums["panes"].sum() != total["totals"].emitted:
        yield f"sums hold {sums['panes'].sum():,} panes, {total['totals'].emitted:,} were emitted"
    lost = sum(one.dead_letters for one in total.values())
    written = sum(
        1 for file in (folder / "checkpoint/beamlike/dead-letters").rglob("*.jsonl") for _ in file.open()
    )
    if lost != written:
        yield f"{lost:,} dead letters were counted, {written:,} written"
    reasons = {"mobile": "dead letters", "checked": "dead letters", "sessions": "late elements"}
    missing = {name for name in reasons if not (total[name].dead_letters or total[name].dropped)}
    yield from (f"{name}: there were no {reasons[name]}, so nothing was tried" for name in sorted(missing))
    size = (folder / "checkpoint" / "beamlike" / RECORDS_FILE).stat().st_size
    if size > MOST_BYTES:
        yield f"the records take {size:,} bytes"


def _stages(total: dict[str, Total]) -> Iterator[str]:
    known = sum(total[name].elements for name in ("mobile", "web")) - total["checked"].dead_letters
    if total["sessions"].elements > known:
        yield f"sessions: {total['sessions'].elements:,} elements of {known:,}"
    if total["totals"].elements != total["sessions"].panes.total():
        yield f"totals: {total['totals'].elements:,} elements of {total['sessions'].panes.total():,} panes"
    for name in ("sessions", "totals"):
        stage = total[name]
        if stage.pending or stage.placed != stage.emitted + stage.dropped.total():
            yield f"{name}: {stage.placed:,} placed, but {stage}"


if __name__ == "__main__":
    sys.exit(main())
