"""Writes the events of Nexmark to files, or to Kafka, in the order in which they arrive.

python -m benchmarks.nexmark.generate build/nexmark --events 10_000_000 --files 10
python -m benchmarks.nexmark.generate localhost:9092 --format kafka
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import attrs
import click
import numpy as np
import polars as pl
from attrs.validators import and_, ge, instance_of, le

from benchmarks.nexmark.chance import Ints
from benchmarks.nexmark.events import FIRST_TIME, KINDS, Nexmark, side
from windowing.time import microseconds

FORMATS = ("parquet", "jsonl", "kafka")
_RECORD = "parameters.json"


@attrs.frozen
class Arrivals:
    """A number of events, divided by arrival into files of each kind; file i of all kinds covers the same time.

    A `share` of events arrives later than it happened, by up to `bound` microseconds.
    """

    nexmark: Nexmark = attrs.field(factory=Nexmark)
    events: int = attrs.field(default=1_000_000, validator=and_(instance_of(int), ge(1)))
    files: int = attrs.field(default=10, validator=and_(instance_of(int), ge(1)))
    share: float = attrs.field(default=0.0, validator=and_(ge(0.0), le(1.0)))
    bound: int = attrs.field(default=0, validator=and_(instance_of(int), ge(0)))

    def numbers(self, file: int) -> Ints:
        """Returns the numbers of the events of a file, in order of arrival."""
        first, last = (self.events * each // self.files for each in (file, file + 1))
        if not self.share or not self.bound:
            return np.arange(first, last, dtype=np.int64)
        # Events that arrive in this interval are at most `bound` older.
        early = max(0, first - self.bound * self.nexmark.rate // 1_000_000 - 1)
        candidates = np.arange(early, last, dtype=np.int64)
        arrival = self._arrival(candidates)
        begin, end = self.nexmark.times(np.array([first, last], dtype=np.int64))
        here = arrival >= begin if file else np.full(len(candidates), True)
        here &= arrival < end if file + 1 < self.files else True
        return candidates[here][np.argsort(arrival[here], kind="stable")]

    def frames(self, file: int) -> Iterator[tuple[str, pl.DataFrame]]:
        """Yields the events of a file, by kind."""
        numbers = self.numbers(file)
        for kind in KINDS:
            yield kind, getattr(self.nexmark, kind)(numbers)

    def _arrival(self, numbers: Ints) -> Ints:
        """Returns the times of arrival (us)."""
        chance = self.nexmark.chance
        delay = chance.below("delay", numbers, self.bound + 1)
        return self.nexmark.times(numbers) + np.where(
            chance.uniform("delayed", numbers) < self.share, delay, 0
        )


def write(out: Path, arrivals: Arrivals, form: str = "parquet") -> Path:
    """Writes `out/<kind>/part-00000.<form>` and so on, and `out/side.parquet`; returns `out`.

    A folder that has these events already is not changed.
    """
    record, wanted = out / _RECORD, json.dumps({**attrs.asdict(arrivals), "format": form}, sort_keys=True)
    if record.exists() and record.read_text() == wanted:
        return out
    record.unlink(missing_ok=True)
    for kind in KINDS:
        shutil.rmtree(out / kind, ignore_errors=True)
        (out / kind).mkdir(parents=True)
    for file in range(arrivals.files):
        for kind, frame in arrivals.frames(file):
            path = out / kind / f"part-{file:05}.{form}"
            frame.write_parquet(path) if form == "parquet" else frame.write_ndjson(path)
    side().write_parquet(out / "side.parquet")
    record.write_text(wanted)
    return out


@click.command(context_settings={"show_default": True})
@click.argument("out")
@click.option("--events", default="1_000_000", callback=lambda *given: int(given[2]), help="How many in all.")
@click.option("--files", default=10, help="Into how many files those of each kind are cut.")
@click.option("--seed", default=1, help="Same seed, same events.")
@click.option("--rate", default=10_000, help="Events per second of event time.")
@click.option("--start", help="The time of the first event, in ISO 8601; by default 2025-12-31T23:59:07Z.")
@click.option("--lead", default=0, help="Bids may be for auctions up to so many ids ahead.")
@click.option("--out-of-order", "share", default=0.0, help="The share of events that arrive late.")
@click.option("--bound", default="0s", help="Greatest delay of late events.")
@click.option("--format", "form", default="parquet", type=click.Choice(FORMATS))
def main(
    out: str,
    events: int,
    files: int,
    seed: int,
    rate: int,
    start: str | None,
    lead: int,
    share: float,
    bound: str,
    form: str,
) -> None:
    """Write events below the folder OUT, each kind in a folder of its own, in files in the order of arrival.

    With --format kafka, send them to the brokers at OUT, each kind to a topic of its own: persons, auctions, bids.
    """
    first = FIRST_TIME if start is None else microseconds_of(start)
    nexmark = Nexmark(seed, rate, first, lead)
    arrivals = Arrivals(nexmark, events, files, share, microseconds(bound))
    if form == "kafka":
        from benchmarks.nexmark.produce import send

        send(out, arrivals)
        click.echo(f"{events:,} events in topics persons, auctions and bids at {out}")
        return
    write(Path(out), arrivals, form)
    click.echo(f"{events:,} events in {files} files of each kind below {out}")


def microseconds_of(text: str) -> int:
    """Converts a time in ISO 8601, in UTC if it has no zone, to microseconds."""
    time = datetime.fromisoformat(text)
    time = time if time.tzinfo else time.replace(tzinfo=UTC)
    return round(time.timestamp() * 1_000_000)


if __name__ == "__main__":
    main()
