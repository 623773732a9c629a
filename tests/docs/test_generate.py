"""The properties of the generated plays: never too late, in order of arrival, the same for the same seed."""

from __future__ import annotations

import polars as pl
import pytest
from click.testing import CliRunner
from polars.testing import assert_frame_equal

from examples import generate
from examples.generate import Plays


@pytest.fixture(scope="module")
def plays() -> dict[str, pl.DataFrame]:
    return generate.frames(Plays(40_000, seed=3, ties=True))


def disorder(frame: pl.DataFrame) -> pl.Series:
    """Returns the microseconds by which each play is older than the newest play before it."""
    time = frame["event_time"].dt.timestamp("us")
    return time.cum_max() - time


@pytest.mark.parametrize("source", ["mobile", "console"])
def test_no_play_is_older_than_the_newest_by_more_than_the_bound(plays, source):
    assert 0 < disorder(plays[source]).max() <= generate.BOUND


@pytest.mark.parametrize("source", ["mobile", "console"])
def test_most_plays_are_out_of_order(plays, source):
    assert (disorder(plays[source]) > 0).mean() > 0.5


def test_plays_stand_in_order_of_arrival_with_the_delay_of_their_source(plays):
    for source, frame in plays.items():
        delay = frame["arrival"] - frame["event_time"].dt.timestamp("us")
        assert frame["arrival"].is_sorted()
        assert generate.DELAYS[source] <= delay.min()
        assert delay.max() <= generate.DELAYS[source] + generate.BOUND


def test_types_are_those_that_the_pipeline_reads(plays):
    for frame in plays.values():
        assert dict(frame.drop("arrival").schema) == {
            "event_time": pl.Datetime("us", "UTC"),
            "user": pl.Int64,
            "score": pl.Int32,
        }


@pytest.mark.parametrize("events", [1, 19, 20, 21, 5_000])
def test_any_number_of_events_can_be_asked_for(events):
    assert sum(frame.height for frame in generate.frames(Plays(events)).values()) == events


def test_the_same_seed_gives_the_same_plays_and_another_seed_others():
    first, again, other = (generate.frames(Plays(2_000, seed=seed))["mobile"] for seed in (5, 5, 6))
    assert_frame_equal(first, again)
    assert not first.equals(other)


def test_users_grow_with_the_events_and_the_hour_does_not():
    for events in (10_000, 100_000):
        frame = pl.concat(generate.frames(Plays(events)).values())
        time = frame["event_time"].dt.timestamp("us")
        assert 0.95 * events / 100 <= frame["user"].n_unique() <= events / 100
        assert time.min() >= generate.START
        assert time.max() < generate.START + 70 * 60_000_000


def test_ties_are_plays_of_a_user_exactly_one_gap_apart():
    def ties(plays: Plays) -> int:
        time = pl.col("event_time").dt.timestamp("us")
        gaps = [
            frame.sort("user", "event_time").select(time.diff().over("user")) == generate.GAP
            for frame in generate.frames(plays).values()
        ]
        return sum(int(frame.to_series().sum()) for frame in gaps)

    assert ties(Plays(40_000, ties=True)) >= 15
    assert ties(Plays(40_000)) == 0


def test_piece_i_of_every_source_covers_the_same_stretch_of_arrival_time(plays):
    pieces = generate.slices(plays, 7)
    arrivals = {source: frame["arrival"].to_list() for source, frame in plays.items()}
    latest = -1
    for i in range(7):
        here = []
        for source in plays:
            here += [arrivals[source].pop(0) for _ in range(pieces[source][i].height)]
        assert latest <= min(here)
        latest = max(here)


def test_pieces_put_together_are_the_plays(plays):
    for source, pieces in generate.slices(plays, 7).items():
        assert_frame_equal(pl.concat(pieces), plays[source].drop("arrival"))


def test_files_are_the_pieces_with_rising_modification_times(tmp_path):
    plays = Plays(3_000, files=4, seed=11)
    out = generate.write(tmp_path / "plays", plays)
    for source, pieces in generate.slices(generate.frames(plays), 4).items():
        paths = sorted((out / source).iterdir())
        times = [path.stat().st_mtime for path in paths]
        assert times == sorted(set(times))
        for path, piece in zip(paths, pieces, strict=True):
            assert_frame_equal(pl.read_parquet(path), piece)


def test_a_source_without_plays_in_a_stretch_gets_an_empty_file(tmp_path):
    out = generate.write(tmp_path, Plays(1, files=3))
    heights = [pl.read_parquet(path).height for path in sorted(out.glob("*/*.parquet"))]
    assert len(heights) == 6
    assert sum(heights) == 1


def test_writing_again_keeps_the_same_plays_and_replaces_others(tmp_path):
    generate.write(tmp_path, Plays(500, files=3))
    file = tmp_path / "mobile" / "part-0000.parquet"
    written = file.stat().st_ino
    generate.write(tmp_path, Plays(500, files=3))
    assert file.stat().st_ino == written
    generate.write(tmp_path, Plays(500, files=2))
    assert len(list((tmp_path / "mobile").iterdir())) == 2


def test_the_command_line_writes_what_is_asked_for(tmp_path):
    options = ["--events", "600", "--files", "2", "--seed", "4", "--ties"]
    result = CliRunner().invoke(generate.main, [str(tmp_path), *options])
    assert result.exit_code == 0, result.output
    expected = generate.slices(generate.frames(Plays(600, 2, 4, True)), 2)["console"][1]
    assert_frame_equal(pl.read_parquet(tmp_path / "console" / "part-0001.parquet"), expected)


@pytest.mark.parametrize("wrong", [{"events": 0}, {"files": 0}, {"seed": -1}])
def test_impossible_parameters_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Plays(**wrong)
