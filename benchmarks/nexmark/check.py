"""Compares what a query has written with the answer of another program.

python -m benchmarks.nexmark.check --query 5 --data build/nexmark --out build/nexmark-q5
"""

from __future__ import annotations

from pathlib import Path

import click
import polars as pl

from benchmarks.nexmark.answers import LAST_PANE, SQL, SUMMED, answer

_NEAR = 1e-9
"""The relative difference that floats may have."""


def written(out: Path) -> pl.DataFrame:
    """Returns the rows of all Parquet files below `out`; none if there is none."""
    files = sorted(path for path in out.rglob("*.parquet") if not path.name.startswith((".", "_")))
    frames = [pl.read_parquet(path, hive_partitioning=False) for path in files]
    return pl.concat(frames) if frames else pl.DataFrame()


def counted(query: int, rows: pl.DataFrame) -> pl.DataFrame:
    """Returns the rows of the result: all rows, the last pane of each key, or the sums of all panes."""
    if rows.is_empty():
        return rows
    if query in LAST_PANE:
        last = pl.col("pane_index") == pl.col("pane_index").max().over(LAST_PANE[query])
        return rows.filter(last)
    if query in SUMMED:
        return rows.group_by(SUMMED[query]).agg(pl.col("bids").sum())
    return rows


def difference(query: int, rows: pl.DataFrame, expected: pl.DataFrame) -> str | None:
    """Returns the difference between the written and the expected rows; None if there is none."""
    rows = counted(query, rows)
    if rows.is_empty() and expected.is_empty():
        return None
    missing = [name for name in expected.columns if name not in rows.columns]
    if missing:
        return f"no column {', '.join(missing)}"
    if len(rows) != len(expected):
        return f"{len(rows):,} rows, not {len(expected):,}"
    ours, theirs = (_in_order(frame.select(expected.columns)) for frame in (rows, expected))
    for name in ours.columns:
        equal = _equal(ours[name], theirs[name])
        if not equal.all():
            at = equal.arg_min()
            assert at is not None
            return f"{name}: {ours.row(at, named=True)} is not {theirs.row(at, named=True)}"
    return None


def _equal(ours: pl.Series, theirs: pl.Series) -> pl.Series:
    if ours.dtype.is_float():
        return ((ours - theirs).abs() <= _NEAR * theirs.abs()) | (ours.is_null() & theirs.is_null())
    return ours.eq_missing(theirs)


def _in_order(frame: pl.DataFrame) -> pl.DataFrame:
    """Returns the rows sorted by all columns, floats last; times and numbers as whole numbers of 64 bits."""
    frame = frame.with_columns(
        pl.col(pl.Datetime).dt.timestamp("us"), (pl.selectors.integer()).cast(pl.Int64)
    )
    return frame.sort(sorted(frame.columns, key=lambda name: frame[name].dtype.is_float()))


@click.command()
@click.option("--query", required=True, type=click.IntRange(min(SQL), max(SQL)))
@click.option("--data", required=True, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--out", required=True, type=click.Path(exists=True, file_okay=False, path_type=Path))
def main(query: int, data: Path, out: Path) -> None:
    """Check that the rows below OUT answer the query over the events below DATA."""
    wrong = difference(query, written(out), answer(query, data))
    if wrong is not None:
        raise click.ClickException(f"query {query}: {wrong}")
    click.echo(f"query {query}: right")


if __name__ == "__main__":
    main()
