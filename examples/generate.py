"""Generates the plays of a game on mobile phones and consoles: sessions, out of order, in order of arrival."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from pathlib import Path

import attrs
import click
import numpy as np
import numpy.typing as npt
import polars as pl
from attrs.validators import ge, instance_of

START = 1_767_268_800_000_000  # 2026-01-01 12:00:00 UTC, microseconds
GAP = 60_000_000  # of the sessions that the pipeline builds, microseconds
BOUND = 5_000_000  # the greatest delay of a play behind a newer one, microseconds
DELAYS = {"mobile": 3_000_000, "console": 30_000_000}  # from event to the earliest arrival, microseconds

_HOUR = 3_600_000_000
_PLAYS_PER_SESSION = 20
_SESSIONS_PER_USER = 5
_MEAN_PAUSE = 8_000_000  # between two plays of a session, microseconds
_TIE_EVERY = 100  # with ties, one in this many sessions has a pause of exactly GAP
_RECORD = "parameters.json"


@attrs.frozen
class Plays:
    """The input to generate: the number of events, the seed, and the number of files for each source.

    With `ties`, one session of a hundred has two plays exactly one session gap apart.
    """

    events: int = attrs.field(default=1_000_000, validator=[instance_of(int), ge(1)])
    files: int = attrs.field(default=10, validator=[instance_of(int), ge(1)])
    seed: int = attrs.field(default=7, validator=[instance_of(int), ge(0)])
    ties: bool = attrs.field(default=False, validator=instance_of(bool))


def frames(plays: Plays) -> dict[str, pl.DataFrame]:
    """Returns the plays of each source in arrival order: event_time, user, score, and arrival (microseconds UTC).

    There is one user for a hundred events, whatever their number, and about one hour of event time. Within a source a
    play is never more than `BOUND` older than the newest that arrived before it.
    """
    rng = np.random.default_rng(plays.seed)
    sessions = -(-plays.events // _PLAYS_PER_SESSION)
    users = max(1, sessions // _SESSIONS_PER_USER)
    user = np.repeat(rng.integers(0, users, sessions), _PLAYS_PER_SESSION)[: plays.events]
    mobile = np.repeat(rng.random(sessions) < 0.5, _PLAYS_PER_SESSION)[: plays.events]
    time = _event_times(rng, sessions, plays.ties)[: plays.events]
    score = rng.integers(1, 100, plays.events, dtype=np.int32)
    # Arrivals in this order are late by less than BOUND: of two plays the earlier arrival has the greater
    # event time by at most the difference of their two draws.
    arrival = (
        time + np.where(mobile, DELAYS["mobile"], DELAYS["console"]) + rng.integers(0, BOUND + 1, len(time))
    )
    everything = pl.DataFrame({"event_time": time, "user": user, "score": score, "arrival": arrival})
    return {
        "mobile": _in_arrival_order(everything, mobile),
        "console": _in_arrival_order(everything, ~mobile),
    }


def _event_times(rng: np.random.Generator, sessions: int, ties: bool) -> npt.NDArray[np.int64]:
    """Returns event times in microseconds, session after session, `_PLAYS_PER_SESSION` each."""
    pauses = rng.exponential(_MEAN_PAUSE, (sessions, _PLAYS_PER_SESSION)).astype(np.int64)
    pauses[:, 0] = START + rng.integers(0, _HOUR, sessions)
    if ties:
        pauses[::_TIE_EVERY, _PLAYS_PER_SESSION // 2] = GAP
    return np.cumsum(pauses, axis=1).ravel()


def _in_arrival_order(plays: pl.DataFrame, mine: npt.NDArray[np.bool_]) -> pl.DataFrame:
    moment = pl.col("event_time").cast(pl.Datetime("us", "UTC"))
    return plays.filter(mine).sort("arrival", maintain_order=True).with_columns(moment)


def slices(sources: dict[str, pl.DataFrame], files: int) -> dict[str, list[pl.DataFrame]]:
    """Cuts each source into `files` pieces; piece i of every source covers the same range of arrival time.

    The ranges have equally many plays of all sources together; a piece may be empty.
    """
    arrivals = np.sort(np.concatenate([frame["arrival"].to_numpy() for frame in sources.values()]))
    edges = arrivals[[len(arrivals) * i // files for i in range(1, files)]]
    cut = {}
    for source, frame in sources.items():
        ends = [0, *np.searchsorted(frame["arrival"].to_numpy(), edges).tolist(), frame.height]
        cut[source] = [frame[a:b].drop("arrival") for a, b in itertools.pairwise(ends)]
    return cut


def write(out: str | os.PathLike[str], plays: Plays) -> Path:
    """Writes the plays as `out/<source>/part-0000.parquet` and so on, and returns `out`.

    The files' modification times rise by a second from file to file, so a file source reads them in order of arrival.
    A folder that already has the plays of the same parameters is not changed.
    """
    out = Path(out)
    record = out / _RECORD
    wanted = json.dumps(attrs.asdict(plays), sort_keys=True)
    if record.exists() and record.read_text() == wanted:
        return out
    record.unlink(missing_ok=True)
    for source, pieces in slices(frames(plays), plays.files).items():
        shutil.rmtree(out / source, ignore_errors=True)
        (out / source).mkdir(parents=True)
        for i, piece in enumerate(pieces):
            path = out / source / f"part-{i:04d}.parquet"
            piece.write_parquet(path, compression="snappy")
            os.utime(path, (START // 1_000_000 + i, START // 1_000_000 + i))
    record.write_text(wanted)
    return out


@click.command()
@click.argument("out", type=click.Path(file_okay=False))
@click.option("--events", default=1_000_000, show_default=True, type=click.IntRange(1), help="Plays in all.")
@click.option("--files", default=10, show_default=True, type=click.IntRange(1), help="Files per source.")
@click.option("--seed", default=7, show_default=True, type=click.IntRange(0), help="Same seed, same plays.")
@click.option("--ties", is_flag=True, help="Some plays exactly one session gap apart.")
def main(out: str, events: int, files: int, seed: int, ties: bool) -> None:
    """Write the plays of both sources below the folder OUT as Parquet files in arrival order."""
    write(out, Plays(events, files, seed, ties))
    click.echo(f"{events:,} plays in {files} files for each of {', '.join(DELAYS)} below {out}")


if __name__ == "__main__":
    main()
