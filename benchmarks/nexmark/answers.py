"""The expected answer of each query, in SQL over the whole input, computed by DuckDB without code of the engine.

Times are whole microseconds, windows and days by the epoch in UTC. `at`, a word of SQL, is called `ts`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import duckdb
import polars as pl

from benchmarks.nexmark.events import KINDS

_SECOND: Final = 1_000_000
_DAY: Final = 86_400 * _SECOND
_WINDOW: Final = 10 * _SECOND

_TIMES: Final[Mapping[str, tuple[str, ...]]] = {
    "persons": (),
    "auctions": ("expires",),
    "bids": (),
}

_EVENTS = """
  SELECT 'person' AS kind, * FROM persons
  UNION ALL BY NAME SELECT 'auction' AS kind, * FROM auctions
  UNION ALL BY NAME SELECT 'bid' AS kind, * FROM bids
"""
_WINNING = """
  SELECT a.id AS auction, seller, category, expires, bidder, price, b.ts AS bid_at
  FROM auctions a JOIN bids b ON b.auction = a.id AND b.ts >= a.ts AND b.ts < a.expires AND price >= reserve
  QUALIFY row_number() OVER (PARTITION BY a.id ORDER BY price DESC, b.ts, bidder) = 1
"""
_FIXED = f"ts // {_WINDOW} * {_WINDOW} AS window_start, ts // {_WINDOW} * {_WINDOW} + {_WINDOW} AS window_end"
_BID = "auction, bidder, price, channel, url, ts"
_CLASSES: Final[Mapping[str, str]] = {
    "": "",
    "_low": "FILTER (price < 10_000)",
    "_mid": "FILTER (price >= 10_000 AND price < 1_000_000)",
    "_high": "FILTER (price >= 1_000_000)",
}


def _by_class(counts: Mapping[str, str]) -> str:
    return ", ".join(
        f"{count} {condition} AS {name}{suffix}"
        for name, count in counts.items()
        for suffix, condition in _CLASSES.items()
    )


_DISTINCT = _by_class(
    {"bids": "count(*)", "bidders": "count(DISTINCT bidder)", "auctions": "count(DISTINCT auction)"}
)
_TODAY = f"ts // {_DAY} * {_DAY}"

SQL: Final[Mapping[int, str]] = {
    0: _EVENTS,
    1: f"SELECT * REPLACE (price * 0.908::DOUBLE AS price) FROM (SELECT {_BID} FROM bids)",
    2: "SELECT auction, price FROM bids WHERE auction % 123 = 0",
    3: """
      SELECT name, city, state, a.id AS auction FROM persons p JOIN auctions a ON a.seller = p.id
      WHERE category = 10 AND state IN ('OR', 'ID', 'CA')
    """,
    4: f"SELECT category, avg(price) AS mean_price FROM ({_WINNING}) GROUP BY category",
    5: f"""
      WITH counts AS (
        SELECT (ts // {2 * _SECOND} - steps) * {2 * _SECOND} AS window_start, auction, count(*) AS bids
        FROM bids, range(5) AS every(steps) GROUP BY ALL)
      SELECT window_start, window_start + {_WINDOW} AS window_end, auction, bids FROM counts
      QUALIFY bids = max(bids) OVER (PARTITION BY window_start)
    """,
    6: f"""
      SELECT seller, avg(price) AS mean_price FROM (
        SELECT * FROM ({_WINNING})
        QUALIFY row_number() OVER (PARTITION BY seller ORDER BY expires DESC, auction DESC) <= 10)
      GROUP BY seller
    """,
    7: f"""
      SELECT {_FIXED}, {_BID} FROM bids QUALIFY price = max(price) OVER (PARTITION BY window_start)
    """,
    8: f"""
      SELECT {_FIXED}, id, name FROM persons
      SEMI JOIN (SELECT seller, {_FIXED.replace("ts", "opened")} FROM (SELECT seller, ts AS opened FROM auctions)) a
      ON a.seller = persons.id AND a.window_start = persons.ts // {_WINDOW} * {_WINDOW}
    """,
    9: _WINNING,
    10: f"SELECT ts // {_WINDOW} * {_WINDOW} AS window_start, * FROM ({_EVENTS})",
    11: f"""
      WITH marked AS (
        SELECT bidder, ts, coalesce(ts - lag(ts) OVER (PARTITION BY bidder ORDER BY ts) >= {_WINDOW}, true) AS first
        FROM bids),
      numbered AS (
        SELECT bidder, ts, sum(first::INT) OVER (PARTITION BY bidder ORDER BY ts ROWS UNBOUNDED PRECEDING) AS session
        FROM marked)
      SELECT bidder, min(ts) AS window_start, max(ts) + {_WINDOW} AS window_end, count(*) AS bids
      FROM numbered GROUP BY bidder, session
    """,
    12: "SELECT bidder, count(*) AS bids FROM bids GROUP BY bidder",
    13: f"SELECT {_BID}, value FROM bids JOIN side ON key = auction % 10_000",
    14: f"""
      SELECT auction, bidder, price * 0.908::DOUBLE AS price,
        CASE WHEN hour BETWEEN 8 AND 18 THEN 'day' WHEN hour <= 6 OR hour >= 20 THEN 'night' ELSE 'other' END
          AS time_of_day,
        length(channel) - length(replace(channel, 'c', '')) AS c_count, channel, url, ts
      FROM (SELECT *, ts // {3600 * _SECOND} % 24 AS hour FROM bids)
      WHERE price * 0.908::DOUBLE > 1_000_000 AND price * 0.908::DOUBLE < 50_000_000
    """,
    15: f"SELECT {_TODAY} AS day, {_DISTINCT} FROM bids GROUP BY day",
    16: f"""
      SELECT channel, {_TODAY} AS day, {_DISTINCT},
        strftime(make_timestamp(max(ts)), '%H:%M') AS last_minute
      FROM bids GROUP BY channel, day
    """,
    17: f"""
      SELECT auction, {_TODAY} AS day, {_by_class({"bids": "count(*)"})},
        min(price) AS min_price, max(price) AS max_price, avg(price) AS mean_price, sum(price)::BIGINT AS sum_price
      FROM bids GROUP BY auction, day
    """,
    18: f"""
      SELECT {_BID} FROM bids QUALIFY row_number() OVER (
        PARTITION BY bidder, auction ORDER BY ts DESC, price DESC, channel DESC, url DESC) = 1
    """,
    19: f"""
      SELECT {_BID}, row_number() OVER (PARTITION BY auction ORDER BY price DESC, ts, bidder, channel, url) AS rank
      FROM bids QUALIFY rank <= 10
    """,
    20: """
      SELECT auction, bidder, price, channel, url, b.ts AS ts,
        item, description, initial_bid, reserve, a.ts AS auction_at, expires, seller, category
      FROM bids b JOIN auctions a ON b.auction = a.id WHERE category = 10
    """,
    21: f"""
      SELECT * FROM (
        SELECT {_BID}, CASE channel WHEN 'Apple' THEN '0' WHEN 'Google' THEN '1' WHEN 'Facebook' THEN '2'
          WHEN 'Baidu' THEN '3' ELSE nullif(regexp_extract(url, '[?&]channel_id=([^&]+)', 1), '') END AS channel_id
        FROM bids)
      WHERE channel_id IS NOT NULL
    """,
    22: f"""
      SELECT {_BID}, split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2, split_part(url, '/', 6) AS dir3
      FROM bids
    """,
}

LAST_PANE: Final[Mapping[int, tuple[str, ...]]] = {
    4: ("category",),
    6: ("seller",),
    15: ("day",),
    16: ("channel", "day"),
    17: ("auction", "day"),
    18: ("bidder", "auction"),
    19: ("auction",),
}
"""Queries that repeat a result, with the columns by which the last pane is chosen."""

SUMMED: Final[Mapping[int, tuple[str, ...]]] = {12: ("bidder",)}
"""Queries of which only the sum over all panes is compared, with the columns of the groups."""


def answer(query: int, data: Path) -> pl.DataFrame:
    """Returns the answer of the query for the events below `data`."""
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        for kind in KINDS:
            times = "".join(f", epoch_us({time}) AS {time}" for time in _TIMES[kind])
            database.execute(
                f'CREATE VIEW {kind} AS SELECT * EXCLUDE ("at"{"".join(f", {t}" for t in _TIMES[kind])}), '
                f"epoch_us(\"at\") AS ts{times} FROM read_parquet('{data}/{kind}/*.parquet')"
            )
        database.execute(f"CREATE VIEW side AS SELECT * FROM read_parquet('{data}/side.parquet')")
        found = pl.from_arrow(database.sql(SQL[query]).to_arrow_table())
        return found.rename({"ts": "at"}, strict=False)
