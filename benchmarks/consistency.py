"""Internal consistency: transfers between accounts, whose balances must add up to zero in every output.

`python -m benchmarks.consistency --transfers 10_000_000` counts the wrong totals of beamlike on both runners. With
`--flink` it also counts those of Flink SQL, which emits a total for each transfer, so it is given fewer transfers.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import attrs
import click
import numpy as np
import polars as pl
from rich.console import Console
from rich.table import Table

from beamlike.spark.session.java import find_java
from benchmarks.engines import ENGINES, Engine, command, install, variables
from benchmarks.logs import reason
from benchmarks.measure import measure

_JOB = "benchmarks.consistency_job"
JOBS: Mapping[str, Engine] = {
    "local": Engine("beamlike, in process", (_JOB, "local"), (0, 0)),
    "spark": Engine("beamlike, on Spark", (_JOB, "spark"), (0, 0)),
    "flink": attrs.evolve(ENGINES["flink-sql"], command=("flink_consistency.py",), jars=()),
}
_FOLDER = click.Path(file_okay=False, path_type=Path)


@attrs.frozen
class Counted:
    """An engine's output: the number of totals, the number that are not zero, and the least and greatest total."""

    outputs: int
    wrong: int
    least: int
    greatest: int


def transfers(count: int, accounts: int) -> pl.DataFrame:
    """Returns transfers of one unit between random accounts, one in each millisecond."""
    random = np.random.default_rng(7)
    ends = {name: random.integers(0, accounts, count) for name in ("from_account", "to_account")}
    return pl.DataFrame(ends).with_columns(
        amount=pl.lit(1, pl.Int64), at=pl.int_range(pl.len(), dtype=pl.Int64)
    )


def inputs(count: int, accounts: int, batch: int, work: Path) -> Path:
    """Writes the transfers to files, each a batch, and to one text file for Flink, unless they exist."""
    data = work / f"transfers-{count}-{accounts}-{batch}"
    if not (data / "done").exists():
        (data / "batches").mkdir(parents=True, exist_ok=True)
        made = transfers(count, accounts)
        for number, part in enumerate(made.iter_slices(batch)):
            part.write_parquet(data / "batches" / f"part-{number:05d}.parquet")
        made.write_csv(data / "transfers.csv", include_header=False)
        (data / "done").touch()
    return data


def totals(out: Path, count: int) -> Counted:
    """Reads the totals that beamlike wrote. The last one must be of all transfers."""
    found = pl.concat([pl.read_parquet(path) for path in sorted(out.rglob("*.parquet"))])
    if found["transferred"].max() != count:
        raise click.ClickException(f"{found['transferred'].max():,} of {count:,} transfers are in a total")
    wrong, values = found.filter(pl.col("total") != 0), found["total"]
    return Counted(len(found), len(wrong), int(values.min()), int(values.max()))  # type: ignore[arg-type]


@click.command()
@click.option("--transfers", "count", default=10_000_000, show_default=True, type=click.IntRange(1))
@click.option("--accounts", default=1_000, show_default=True, type=click.IntRange(2))
@click.option(
    "--batch", default=100_000, show_default=True, type=click.IntRange(1), help="Transfers in a batch."
)
@click.option("--engine", "engines", multiple=True, default=("local", "spark"), type=click.Choice([*JOBS]))
@click.option("--flink", default=0, type=int, help="The number of transfers for Flink SQL; 0 for none.")
@click.option("--work", default=Path("build/bench"), type=_FOLDER, help="For the input, results and logs.")
@click.option("--environments", default=Path("build/bench-envs"), type=_FOLDER, help="For Flink.")
def main(
    count: int,
    accounts: int,
    batch: int,
    engines: tuple[str, ...],
    flink: int,
    work: Path,
    environments: Path,
) -> None:
    """Count the totals that are not zero, and measure the time."""
    table = Table("engine", "transfers", "outputs", "not zero", "least", "greatest", "seconds")
    sizes = {**dict.fromkeys(engines, count), **({"flink": flink} if flink else {})}
    for name, size in sizes.items():
        data = inputs(size, accounts, batch, work)
        found, seconds = run(name, data, size, work, environments)
        figures = (size, found.outputs, found.wrong, found.least, found.greatest)
        table.add_row(JOBS[name].title, *(f"{figure:,}" for figure in figures), f"{seconds:.0f}")
    Console().print(table)


def run(name: str, data: Path, count: int, work: Path, environments: Path) -> tuple[Counted, float]:
    """Runs an engine over the transfers, and returns its totals and the seconds of the process."""
    engine, out, log = JOBS[name], work / f"consistency-{name}", work / f"consistency-{name}.log"
    shutil.rmtree(out, ignore_errors=True)
    python = install(engine, environments)
    env = {**os.environ, "JAVA_HOME": str(find_java().home)} if name == "flink" else dict(os.environ)
    where = data if name == "flink" else data / "batches"
    with open(log, "w") as file:
        usage = measure(
            command(engine, python, where, out), env=variables(engine, python, environments, env), log=file
        )
    if usage.code:
        raise click.ClickException(f"code {usage.code}, {log}: {reason(log.read_text(errors='replace'))}")
    if name == "flink":
        return Counted(**json.loads((out / "totals.json").read_text())), usage.wall
    return totals(out, count), usage.wall


if __name__ == "__main__":
    main()
