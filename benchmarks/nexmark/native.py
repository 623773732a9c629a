"""The queries of Nexmark that native Structured Streaming supports, each a query in Spark SQL.

echo build/nexmark | BENCHMARK_TURNS=1 python -m benchmarks.nexmark.native --query 5 --out build/native-5
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs
import click
from pyspark.sql import DataFrame, SparkSession

from benchmarks.native import session
from benchmarks.nexmark.events import KINDS
from benchmarks.nexmark.pipeline import TO_FILES
from benchmarks.peers.turns import turns

_COLUMNS: Final = {
    "persons": "id long, name string, email string, credit_card string, city string, state string, at timestamp",
    "auctions": "id long, item string, description string, initial_bid long, reserve long, at timestamp, "
    "expires timestamp, seller long, category long",
    "bids": "auction long, bidder long, price long, channel string, url string, at timestamp",
}
_BID: Final = "auction, bidder, price, channel, url, at"
_WINDOW: Final = "window.start AS window_start, window.end AS window_end"


@attrs.frozen
class Native:
    """A query; `update`: rows are emitted again when they change."""

    sql: str
    update: bool = False


_CLASSES: Final = {
    "": "",
    "_low": " FILTER (WHERE price < 10000)",
    "_mid": " FILTER (WHERE price >= 10000 AND price < 1000000)",
    "_high": " FILTER (WHERE price >= 1000000)",
}
_COUNTS: Final = ", ".join(f"count(*){condition} AS bids{end}" for end, condition in _CLASSES.items())

NATIVE: Final[Mapping[int, Native]] = {
    0: Native("SELECT * FROM events"),
    1: Native("SELECT auction, bidder, price * 0.908D AS price, channel, url, at FROM bids"),
    2: Native("SELECT auction, price FROM bids WHERE auction % 123 = 0"),
    3: Native(
        """SELECT name, city, state, a.id AS auction FROM persons p JOIN auctions a ON a.seller = p.id
        WHERE category = 10 AND state IN ('OR', 'ID', 'CA')"""
    ),
    5: Native(
        """WITH counts AS (
          SELECT window, auction, count(*) AS bids FROM bids GROUP BY window(at, '10 seconds', '2 seconds'), auction),
        most AS (
          SELECT window(window_time(window), '2 seconds').end AS window_end, max(bids) AS most,
            collect_list(struct(auction, bids)) AS hot
          FROM counts GROUP BY window(window_time(window), '2 seconds'))
        SELECT window_end - INTERVAL 10 SECONDS AS window_start, window_end,
          inline(filter(hot, one -> one.bids = most)) FROM most"""
    ),
    7: Native(
        f"""WITH most AS (
          SELECT window, max(price) AS most, collect_list(struct({_BID})) AS bids
          FROM bids GROUP BY window(at, '10 seconds'))
        SELECT {_WINDOW}, inline(filter(bids, one -> one.price = most)) FROM most"""
    ),
    8: Native(
        f"""SELECT {_WINDOW.replace("window.", "p.window.")}, id, name
        FROM (SELECT id, name, window(at, '10 seconds') AS window FROM persons) p
        JOIN (SELECT DISTINCT seller, window(at, '10 seconds') AS window FROM auctions) a
        ON p.id = a.seller AND p.window = a.window"""
    ),
    10: Native(
        """SELECT * EXCEPT (ten), ten.start AS window_start, date_format(ten.start, 'yyyyMMddHHmmss') AS folder
        FROM (SELECT *, window(at, '10 seconds') AS ten FROM events)"""
    ),
    11: Native(
        """SELECT bidder, session_window.start AS window_start, session_window.end AS window_end, count(*) AS bids
        FROM bids GROUP BY session_window(at, '10 seconds'), bidder"""
    ),
    12: Native(
        "SELECT bidder, count(*) AS bids FROM bids GROUP BY bidder, window(current_timestamp(), '10 seconds')",
        update=True,
    ),
    13: Native(f"SELECT {_BID}, value FROM bids JOIN side ON key = auction % 10000"),
    14: Native(
        """SELECT auction, bidder, price * 0.908D AS price,
          CASE WHEN hour(at) BETWEEN 8 AND 18 THEN 'day' WHEN hour(at) <= 6 OR hour(at) >= 20 THEN 'night'
            ELSE 'other' END AS time_of_day,
          CAST(length(channel) - length(replace(channel, 'c', '')) AS long) AS c_count, channel, url, at
        FROM bids WHERE price * 0.908D > 1000000 AND price * 0.908D < 50000000"""
    ),
    17: Native(
        f"""SELECT auction, CAST(date_trunc('day', at) AS timestamp) AS day, {_COUNTS}, min(price) AS min_price,
          max(price) AS max_price, avg(price) AS mean_price, sum(price) AS sum_price
        FROM bids GROUP BY auction, date_trunc('day', at)""",
        update=True,
    ),
    18: Native(
        """SELECT auction, bidder, last.price, last.channel, last.url, last.at
        FROM (
          SELECT auction, bidder, max(struct(at, price, channel, url)) AS last FROM bids GROUP BY auction, bidder)""",
        update=True,
    ),
    20: Native(
        """SELECT auction, bidder, price, channel, url, b.at AS at, item, description, initial_bid, reserve,
          a.at AS auction_at, expires, seller, category
        FROM bids b JOIN auctions a ON b.auction = a.id WHERE category = 10"""
    ),
    21: Native(
        f"""SELECT * FROM (
          SELECT {_BID}, CASE channel WHEN 'Apple' THEN '0' WHEN 'Google' THEN '1' WHEN 'Facebook' THEN '2'
            WHEN 'Baidu' THEN '3' ELSE nullif(regexp_extract(url, '[?&]channel_id=([^&]+)', 1), '') END AS channel_id
          FROM bids)
        WHERE channel_id IS NOT NULL"""
    ),
    22: Native(
        f"""SELECT {_BID}, parts[3] AS dir1, parts[4] AS dir2, parts[5] AS dir3
        FROM (SELECT *, split(url, '/') AS parts FROM bids)"""
    ),
}

CANNOT: Final[Mapping[int, str]] = {
    4: "no aggregate of an aggregate whose rows change",
    6: "no last ten of each key",
    9: "no end of a join by a time that each row has",
    15: "no distinct counts of a stream",
    16: "no distinct counts of a stream",
    19: "no first ten of each key",
}


def views(spark: SparkSession, data: Path, bound: str) -> None:
    """Creates views of the streams, a file of each kind in a micro-batch; of all as one; and of the side table."""
    streams: dict[str, DataFrame] = {}
    for kind in KINDS:
        stream = spark.readStream.schema(_COLUMNS[kind]).option("maxFilesPerTrigger", 1)
        streams[kind] = stream.parquet(str(data / kind)).withWatermark("at", bound)
        streams[kind].createOrReplaceTempView(kind)
    persons, auctions, bids = (streams[kind].selectExpr(f"'{kind[:-1]}' AS kind", "*") for kind in KINDS)
    events = persons.unionByName(auctions, allowMissingColumns=True).unionByName(
        bids, allowMissingColumns=True
    )
    events.createOrReplaceTempView("events")
    spark.read.parquet(str(data / "side.parquet")).createOrReplaceTempView("side")


def run(spark: SparkSession, query: int, data: Path, out: Path, bound: str) -> None:
    """Runs the query over all files of `data`. Its rows are dropped; only the query about files writes below `out`."""
    native = NATIVE[query]
    views(spark, data, bound)
    rows = spark.sql(native.sql)
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = rows.writeStream.option("checkpointLocation", checkpoint).trigger(availableNow=True)
        if query == TO_FILES:
            started = writer.partitionBy("folder").format("parquet").start(str(out))
        else:
            started = writer.outputMode("update" if native.update else "append").format("noop").start()
        started.awaitTermination()


@click.command()
@click.option("--query", required=True, type=click.Choice([str(query) for query in NATIVE]))
@click.option("--out", required=True, type=click.Path(file_okay=False, path_type=Path))
@click.option("--cores", default=2, show_default=True, type=click.IntRange(1))
@click.option("--bound", default="1 second", show_default=True, help="Bound on the lateness of events.")
def main(query: str, out: Path, cores: int, bound: str) -> None:
    """Run a query over the events below each folder of a line of standard input.

    The rows of the query about files are written below OUT.
    """
    spark = session(cores)
    for data in turns():
        run(spark, int(query), data, out, bound)
    spark.stop()


if __name__ == "__main__":
    main()
