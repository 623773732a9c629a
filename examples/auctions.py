"""An online auction: three of the queries of Nexmark, explained, on a handful of events.

    python -m examples.auctions [--runner local|spark]

All 23 are in benchmarks/nexmark/queries.py; docs/nexmark.md describes them.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click
import polars as pl
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

import beamlike as bl

AUCTIONS = {"item": str, "seller": str, "reserve": int, "at": datetime, "expires": datetime}
BIDS = {"item": str, "bidder": str, "price": int, "at": datetime}


def moment(second: int) -> datetime:
    """Returns a time this many seconds after noon."""
    return datetime.fromisoformat(f"2026-01-01T12:00:{second:02}Z")


OPENED = [
    {"item": "lamp", "seller": "ada", "reserve": 20, "at": moment(1), "expires": moment(12)},
    {"item": "rug", "seller": "bob", "reserve": 50, "at": moment(3), "expires": moment(9)},
    {"item": "vase", "seller": "ada", "reserve": 5, "at": moment(6), "expires": moment(30)},
]
OFFERED = [
    {"item": item, "bidder": bidder, "price": price, "at": moment(second)}
    for item, bidder, price, second in [
        ("lamp", "eve", 15, 0),  # before the auction opens
        ("lamp", "eve", 25, 2),
        ("rug", "eve", 40, 4),  # less than the reserve
        ("lamp", "dan", 30, 5),
        ("vase", "dan", 7, 8),
        ("lamp", "eve", 30, 9),  # as much as another, but later
        ("rug", "dan", 60, 9),  # after the auction is over
        ("vase", "eve", 9, 11),
    ]
]


def hot_items(bids: bl.Collection) -> bl.Collection:
    """Query 5: every two seconds, the auctions with the most bids in the last ten.

    The first grouping counts by auction and window. The second one uses the same windows, without a key, and selects
    all auctions with the greatest count: a list of structs, which become rows and columns.
    """
    counts = bids.window_into(bl.SlidingWindows("10s", "2s")).group_by("item").aggregate(bids=bl.count())
    return (
        counts.aggregate(hot=bl.top(["item", "bids"], 1, by="bids", ties=True)).explode("hot").unnest("hot")
    )


def winners(auctions: bl.Collection, bids: bl.Collection) -> bl.Collection:
    """Query 9: the bid that wins each auction, emitted once, when the auction is over.

    Each auction is joined with the bids that are made while it is open. The pairs move to the time at which it expires,
    into a window of its own, which the watermark closes when no bid can arrive any more. Among equal prices the first
    bid wins: on a tie, `arg_max` chooses the least value.
    """
    offers = auctions.join(
        bids.rename({"at": "bid_at"}), on="item", within=("0s", bl.col("expires") - bl.col("at"))
    )
    return (
        offers.filter(bl.col("price") >= bl.col("reserve"), bl.col("bid_at") < bl.col("expires"))
        .with_timestamps("expires")
        .window_into(bl.FixedWindows("1us"))
        .group_by("item", "seller", "expires")
        .aggregate(best=bl.arg_max(["bid_at", "bidder", "price"], by="price"))
        .unnest("best")
    )


def ranking(bids: bl.Collection) -> bl.Collection:
    """Query 19: the two highest bids of each auction, so far.

    There is no window, so there is no end: each pane has all bids so far, and replaces the one before.
    """
    so_far = bids.window_into(
        trigger=bl.AfterWatermark(early=bl.AfterCount(2)), accumulation=bl.ACCUMULATING
    ).group_by("item")
    highest = so_far.aggregate(bid=bl.top(["price", "at", "bidder"], 2, by="price"))
    return highest.explode("bid", number="rank").unnest("bid")


def pipeline() -> tuple[bl.Pipeline, dict[str, bl.Memory]]:
    """Declares the three queries; returns the pipeline and the sinks of their rows."""
    p = bl.Pipeline("auctions")
    read: dict[str, Any] = {"timestamp": "at", "watermark": bl.BoundedOutOfOrderness("1s")}
    auctions = p.read("auctions", bl.Rows(OPENED, AUCTIONS, rows_per_batch=1), **read)
    bids = p.read("bids", bl.Rows(OFFERED, BIDS, rows_per_batch=3), **read)
    answers = {"hot items": hot_items(bids), "winners": winners(auctions, bids), "ranking": ranking(bids)}
    found = {name: bl.Memory() for name in answers}
    for name, answer in answers.items():
        answer.write(name, found[name])
    return p, found


def shown(title: str, rows: pl.DataFrame, *columns: str) -> Table:
    """Returns a table of these columns, times without their day."""
    table = Table(*columns, title=title, box=SIMPLE_HEAD, title_justify="left")
    for row in rows.select(columns).iter_rows():
        table.add_row(*(f"{value:%H:%M:%S}" if isinstance(value, datetime) else str(value) for value in row))
    return table


@click.command()
@click.option("--runner", default="local", type=click.Choice(["local", "spark"]), show_default=True)
def main(runner: str) -> None:
    """Show the hot items, the winners and the highest bids."""
    p, found = pipeline()
    p.run(bl.LocalRunner() if runner == "local" else bl.SparkRunner(drain=True, shards=2, master="local[2]"))
    console = Console()
    hot = found["hot items"].frame().sort("window_end", "item")
    console.print(shown("The most bids in ten seconds", hot, "window_end", "item", "bids"))
    won = found["winners"].frame().sort("expires")
    console.print(shown("Who wins", won, "item", "seller", "bidder", "price", "bid_at", "expires"))
    last = pl.col("pane_index") == pl.col("pane_index").max().over("item")
    ranks = found["ranking"].frame().filter(last).sort("item", "rank")
    console.print(shown("The highest bids of each", ranks, "item", "rank", "price", "bidder"))


if __name__ == "__main__":
    main()
