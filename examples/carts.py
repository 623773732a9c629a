"""Abandoned carts: thirty minutes after the last item was added, unless they are bought before.

    python -m examples.carts [--runner local|spark]

A second stage adds up the value of both kinds. The carts are compared with a plain computation, shopper by shopper.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import Any

import attrs
import click
import numpy as np
import polars as pl
from matplotlib.dates import DateFormatter
from rich.console import Console

import beamlike as bl
from examples.drawing import figures, save

START = datetime(2026, 1, 1, 9, tzinfo=UTC)
PATIENCE = timedelta(minutes=30)
BOUND = timedelta(minutes=1)  # the greatest delay of a click behind a newer one
OUTCOMES = {"bought": "#009E73", "abandoned": "#D55E00"}

_CARTS = {"shopper": int, "outcome": str, "items": int, "cents": int}
Click = tuple[int, datetime, str, int | None]
"""Shopper, time, what was done, and what the item costs."""

_MICROSECOND = timedelta(microseconds=1)


@attrs.frozen
class Shoppers:
    """The number of shoppers, who arrive within eight hours, some of them twice."""

    shoppers: int = 2_000
    seed: int = 7


def clicks(asked: Shoppers) -> pl.DataFrame:
    """Returns the items that were added and the carts that were bought, in order of arrival: shopper, at, what, cents.

    The first shopper buys exactly thirty minutes after the last item, which is too late.
    """
    rng = np.random.default_rng(asked.seed)
    rows: list[Click] = [(0, START, "add", 500), (0, START + PATIENCE, "buy", None)]
    for shopper in range(1, asked.shoppers):
        for _ in range(rng.integers(1, 3)):
            rows += _visit(rng, shopper, START + timedelta(hours=8 * rng.random()))
    delay = pl.Series(rng.integers(0, BOUND // _MICROSECOND, len(rows)))
    came = pl.DataFrame(rows, ["shopper", "at", "what", "cents"], orient="row")
    return came.sort(came["at"] + delay.cast(pl.Duration("us")), maintain_order=True)


def _visit(rng: np.random.Generator, shopper: int, at: datetime) -> Iterator[Click]:
    for _ in range(rng.integers(1, 6)):
        yield shopper, at, "add", int(rng.integers(500, 10_000))
        at += timedelta(minutes=rng.exponential(8))
    if rng.random() < 0.6:
        yield shopper, at, "buy", None


class Carts(bl.Process):
    """Emits a row for each cart when it is bought or abandoned."""

    cents = bl.List(int)
    abandoned = bl.EventTimer()

    def element(self, row: dict[str, Any]) -> Any:
        if row["what"] == "add":
            self.cents.append(row["cents"])
            self.abandoned.after(PATIENCE)
        elif self.cents:
            self.abandoned.clear()
            yield self._cart("bought")

    def on_abandoned(self) -> Any:
        yield self._cart("abandoned")

    def _cart(self, outcome: str) -> dict[str, Any]:
        cents, self.cents = self.cents, []
        return {"shopper": self.key.shopper, "outcome": outcome, "items": len(cents), "cents": sum(cents)}


def pipeline(source: Any) -> tuple[bl.Pipeline, bl.Collection, bl.Collection]:
    """Declares the pipeline with its two collections: the carts, and their value in each quarter of an hour."""
    p = bl.Pipeline("carts")
    came = p.read("clicks", source, timestamp="at", watermark=bl.BoundedOutOfOrderness(BOUND))
    carts = came.group_by("shopper", name="carts").process(Carts(), _CARTS)
    quarters = carts.window_into(bl.FixedWindows("15m")).group_by("outcome", name="quarters")
    return p, carts, quarters.aggregate(carts=bl.count(), cents=bl.sum("cents"))


@attrs.frozen
class Sold:
    """The carts (shopper, outcome, items, cents, event_time), and the totals by window_start and outcome."""

    carts: pl.DataFrame
    quarters: pl.DataFrame

    def equals(self, other: Sold) -> bool:
        """True if both results are the same."""
        return self.carts.equals(other.carts) and self.quarters.equals(other.quarters)


def run(came: pl.DataFrame, runner: Any = None, batches: int = 10) -> Sold:
    """Runs the pipeline over the clicks."""
    p, carts, quarters = pipeline(bl.Rows(came, rows_per_batch=-(-len(came) // batches)))
    of_carts, of_quarters = bl.Memory(), bl.Memory()
    carts.write("single carts", of_carts)
    quarters.write("totals", of_quarters)
    p.run(runner)
    totals = of_quarters.frame().select("window_start", "outcome", "carts", "cents")
    return Sold(
        of_carts.frame().select(*_CARTS, "event_time").sort("shopper", "event_time"),
        totals.sort("window_start", "outcome"),
    )


def expected(came: pl.DataFrame) -> Sold:
    """Computes the same in plain Python, shopper by shopper, and polars."""
    rows = came.sort("shopper", "at").rows()
    carts = [cart for _, own in groupby(rows, key=lambda click: click[0]) for cart in _carts(list(own))]
    found = pl.DataFrame(carts, [*_CARTS, "event_time"], orient="row")
    window = pl.col("event_time").dt.truncate("15m").alias("window_start")
    totals = found.group_by(window, "outcome").agg(carts=pl.len().cast(pl.Int64), cents=pl.sum("cents"))
    return Sold(found, totals.sort("window_start", "outcome"))


def _carts(own: list[Click]) -> Iterator[tuple[int, str, int, int, datetime]]:
    """Yields the carts of one shopper, whose clicks are in order of time."""
    cart: list[int] = []
    for (shopper, at, what, cents), after in zip(own, [*own[1:], None], strict=True):
        if what == "add":
            cart.append(cents or 0)
        elif cart:
            yield shopper, "bought", len(cart), sum(cart), at
            cart = []
        if cart and (after is None or after[1] >= at + PATIENCE):
            yield shopper, "abandoned", len(cart), sum(cart), at + PATIENCE
            cart = []


def picture(sold: Sold, path: Path) -> None:
    """Draws the value of the carts, by quarter of an hour."""
    figure, ((panel,),) = figures(1, 1, (9, 3))
    for side, (outcome, color) in enumerate(OUTCOMES.items()):
        own = sold.quarters.filter(pl.col("outcome") == outcome)
        left = [start + side * timedelta(minutes=6) for start in own["window_start"]]
        heights = (own["cents"] / 100).to_list()
        panel.bar(left, heights, timedelta(minutes=6), align="edge", color=color, label=outcome)
    panel.xaxis.set_major_formatter(DateFormatter("%H:%M"))
    panel.set_title("What carts were worth, by quarter of an hour", fontsize="medium")
    panel.legend(fontsize="small")
    save(figure, path)


@click.command(context_settings={"show_default": True})
@click.option("--runner", "on", default="local", type=click.Choice(["local", "spark"]))
@click.option("--shoppers", default=2_000, type=click.IntRange(2))
@click.option("--seed", default=7, type=click.IntRange(0), help="Seed of the generated clicks.")
@click.option("--work", default=Path("build/demo"), type=click.Path(file_okay=False, path_type=Path))
def main(on: str, shoppers: int, seed: int, work: Path) -> None:
    """Find abandoned carts and draw their value; exit code 1 if they are not as expected."""
    console = Console()
    came = clicks(Shoppers(shoppers, seed))
    sold = run(came, bl.SparkRunner() if on == "spark" else bl.LocalRunner())
    right = sold.equals(expected(came))
    worth = sold.carts.group_by("outcome").agg(pl.len(), pl.sum("cents") / 100).sort("outcome")
    told = ", ".join(f"{carts:,} {outcome} ({euros:,.0f} euros)" for outcome, carts, euros in worth.rows())
    console.print(f"{len(came):,} clicks of {shoppers:,} shoppers: {told}", highlight=False, soft_wrap=True)
    console.print(
        "[green]OK[/green] the same as in plain Python" if right else "[red]WRONG[/red]: others expected"
    )
    work.mkdir(parents=True, exist_ok=True)
    picture(sold, work / "carts.svg")
    console.print(f"To look at: {work / 'carts.svg'}", highlight=False, soft_wrap=True)
    sys.exit(not right)


if __name__ == "__main__":
    main()
