"""The queries of Nexmark in SQL, by number. Other queries need more than SQL supports here; see docs/sql.md."""

from __future__ import annotations

from typing import Final

_EARLY: Final = "EMIT EARLY EVERY 1 ROWS ACCUMULATING"
_CLASSES: Final = {
    "": "",
    "_low": "FILTER (WHERE price < 10000)",
    "_mid": "FILTER (WHERE price >= 10000 AND price < 1000000)",
    "_high": "FILTER (WHERE price >= 1000000)",
}


def _by_class(counts: dict[str, str]) -> str:
    return ", ".join(
        f"{count} {condition} AS {name}{suffix}"
        for name, count in counts.items()
        for suffix, condition in _CLASSES.items()
    )


_DISTINCT: Final = _by_class(
    {"bids": "COUNT(*)", "bidders": "COUNT(DISTINCT bidder)", "auctions": "COUNT(DISTINCT auction)"}
)
_DAY: Final = "TUMBLE(at, INTERVAL '1' DAY)"

SQL: Final = {
    1: "SELECT auction, bidder, price * 0.908 AS price, channel, url, at FROM bids",
    2: "SELECT auction, price FROM bids WHERE auction % 123 = 0",
    3: """
      SELECT p.name, p.city, p.state, a.id AS auction FROM persons p JOIN auctions a ON a.seller = p.id
      WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')
    """,
    5: """
      SELECT auction, bids FROM (
        SELECT auction, bids, RANK() OVER (PARTITION BY window_start, window_end ORDER BY bids DESC) AS n FROM (
          SELECT auction, COUNT(*) AS bids
          FROM TABLE(HOP(TABLE bids, DESCRIPTOR(at), INTERVAL '2' SECONDS, INTERVAL '10' SECONDS))
          GROUP BY auction, window_start, window_end))
      WHERE n = 1
    """,
    7: """
      SELECT auction, bidder, price, channel, url, at FROM (
        SELECT *, RANK() OVER (PARTITION BY window_start ORDER BY price DESC) AS n
        FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '10' SECONDS)))
      WHERE n = 1
    """,
    8: """
      SELECT p.id, p.name FROM TABLE(TUMBLE(TABLE persons, DESCRIPTOR(at), INTERVAL '10' SECONDS)) p
      LEFT SEMI JOIN TABLE(TUMBLE(TABLE auctions, DESCRIPTOR(at), INTERVAL '10' SECONDS)) a
      ON p.id = a.seller AND p.window_start = a.window_start AND p.window_end = a.window_end
    """,
    11: "SELECT bidder, COUNT(*) AS bids FROM bids GROUP BY bidder, SESSION(at, INTERVAL '10' SECONDS)",
    12: "SELECT bidder, COUNT(*) AS bids FROM bids GROUP BY bidder EMIT EVERY 1 ROWS",
    13: """
      SELECT auction, bidder, price, channel, url, at, value
      FROM (SELECT *, auction % 10000 AS key FROM bids) b JOIN side ON b.key = side.key
    """,
    14: """
      SELECT auction, bidder, price * 0.908 AS price,
        CASE WHEN HOUR(at) BETWEEN 8 AND 18 THEN 'day' WHEN HOUR(at) <= 6 OR HOUR(at) >= 20 THEN 'night'
          ELSE 'other' END AS time_of_day,
        LENGTH(channel) - LENGTH(REPLACE(channel, 'c', '')) AS c_count, channel, url, at
      FROM bids WHERE price * 0.908 > 1000000 AND price * 0.908 < 50000000
    """,
    15: f"SELECT window_start AS day, {_DISTINCT} FROM bids GROUP BY {_DAY} {_EARLY}",
    16: f"""
      SELECT channel, window_start AS day, {_DISTINCT}, DATE_FORMAT(MAX(at), '%H:%M') AS last_minute
      FROM bids GROUP BY channel, {_DAY} {_EARLY}
    """,
    17: f"""
      SELECT auction, window_start AS day, {_by_class({"bids": "COUNT(*)"})}, MIN(price) AS min_price,
        MAX(price) AS max_price, AVG(price) AS mean_price, SUM(price) AS sum_price
      FROM bids GROUP BY auction, {_DAY} {_EARLY}
    """,
    18: f"""
      SELECT auction, bidder, price, channel, url, at FROM (
        SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY at DESC, price DESC, channel DESC, url DESC)
          AS n FROM bids)
      WHERE n <= 1 {_EARLY}
    """,
    19: f"""
      SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS rank FROM bids)
      WHERE rank <= 10 {_EARLY}
    """,
    20: """
      SELECT b.*, a.item, a.description, a.initial_bid, a.reserve, a.at AS auction_at, a.expires, a.seller, a.category
      FROM bids b JOIN auctions a ON b.auction = a.id WHERE a.category = 10
    """,
    21: """
      SELECT * FROM (
        SELECT *, CASE channel WHEN 'Apple' THEN '0' WHEN 'Google' THEN '1' WHEN 'Facebook' THEN '2'
          WHEN 'Baidu' THEN '3' ELSE REGEXP_EXTRACT(url, '[?&]channel_id=([^&]+)', 1) END AS channel_id FROM bids)
      WHERE channel_id IS NOT NULL
    """,
    22: """
      SELECT *, SPLIT_PART(url, '/', 4) AS dir1, SPLIT_PART(url, '/', 5) AS dir2, SPLIT_PART(url, '/', 6) AS dir3
      FROM bids
    """,
}
