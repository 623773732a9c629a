"""The queries of Nexmark as a user would write them, each a function from the auction's streams to its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs
import polars as pl

import beamlike as bl

BID: Final = ["auction", "bidder", "price", "channel", "url", "at"]
STATES: Final = ("OR", "ID", "CA")
EURO: Final = 0.908

EARLY: Final = {
    "trigger": bl.AfterWatermark(early=bl.AfterCount(1)),
    "accumulation": bl.ACCUMULATING,
}
"""A result whenever elements have arrived; each replaces the one before."""

CLASSES: Final = {
    "": None,
    "_low": bl.col("price") < 10_000,
    "_mid": (bl.col("price") >= 10_000) & (bl.col("price") < 1_000_000),
    "_high": bl.col("price") >= 1_000_000,
}
"""Classes of prices, by the end of the names of the columns that are about them."""


@attrs.frozen
class Auction:
    """The streams of an online auction, and a table of 10,000 rows beside them."""

    persons: bl.Collection
    auctions: bl.Collection
    bids: bl.Collection
    side: bl.Collection

    @property
    def events(self) -> bl.Collection:
        """All three as one stream, each with nulls in the columns of the others."""
        kinds = {"person": self.persons, "auction": self.auctions, "bid": self.bids}
        return bl.flatten(
            *(rows.with_columns(kind=bl.lit(kind)) for kind, rows in kinds.items()), fill_missing=True
        )

    @property
    def winning(self) -> bl.Collection:
        """The winning bid of each auction that has one, when the auction is over."""
        bids = self.bids.select("auction", "bidder", "price", bid_at="at")
        offers = self.auctions.select("id", "seller", "category", "reserve", "at", "expires").join(
            bids, left_on="id", right_on="auction", within=("0s", bl.col("expires") - bl.col("at"))
        )
        return (
            offers.filter(bl.col("price") >= bl.col("reserve"), bl.col("bid_at") < bl.col("expires"))
            .rename({"id": "auction"})
            .with_timestamps("expires")
            .window_into(bl.FixedWindows("1us"))
            .group_by("auction", "seller", "category", "expires")
            .aggregate(best=bl.arg_max(["bid_at", "bidder", "price"], by="price"))
            .unnest("best")
        )


def query_0(auction: Auction) -> bl.Collection:
    """Returns every event, unchanged."""
    return auction.events


def query_1(auction: Auction) -> bl.Collection:
    """Returns bids in euros."""
    return auction.bids.with_columns(price=bl.col("price") * EURO)


def query_2(auction: Auction) -> bl.Collection:
    """Returns bids for some auctions."""
    return auction.bids.filter(bl.col("auction") % 123 == 0).select("auction", "price")


def query_3(auction: Auction) -> bl.Collection:
    """Returns people who sell in category 10, in three states."""
    persons = auction.persons.filter(bl.col("state").is_in(STATES)).select("id", "name", "city", "state")
    auctions = auction.auctions.filter(bl.col("category") == 10).select("seller", auction="id")
    return persons.join(auctions, left_on="id", right_on="seller", keep_forever=True).drop("id")


def query_4(auction: Auction) -> bl.Collection:
    """Returns the mean winning price of each category, so far."""
    so_far = auction.winning.window_into(bl.GlobalWindows(), **EARLY).group_by("category")
    return so_far.aggregate(mean_price=bl.mean("price"))


def query_5(auction: Auction) -> bl.Collection:
    """Returns the auctions with the most bids in the last ten seconds, every two seconds."""
    counts = (
        auction.bids.window_into(bl.SlidingWindows("10s", "2s"))
        .group_by("auction")
        .aggregate(bids=bl.count())
    )
    hot = counts.aggregate(hot=bl.top(["auction", "bids"], 1, by="bids", ties=True))
    return hot.explode("hot").unnest("hot")


def query_6(auction: Auction) -> bl.Collection:
    """Returns the mean winning price of the last ten auctions of each seller, so far."""
    so_far = auction.winning.window_into(bl.GlobalWindows(), **EARLY).group_by("seller")
    last = so_far.aggregate(last=bl.top("price", 10, by=["expires", "auction"]))
    return last.select("seller", mean_price=bl.col("last").list.mean())


def query_7(auction: Auction) -> bl.Collection:
    """Returns the highest bids of every ten seconds."""
    windows = auction.bids.window_into(bl.FixedWindows("10s"))
    return windows.aggregate(bid=bl.top(BID, 1, by="price", ties=True)).explode("bid").unnest("bid")


def query_8(auction: Auction) -> bl.Collection:
    """Returns people who registered and opened an auction within the same ten seconds."""
    persons = auction.persons.select("id", "name").window_into(bl.FixedWindows("10s"))
    sellers = auction.auctions.select("seller").window_into(bl.FixedWindows("10s"))
    return persons.join(sellers, left_on="id", right_on="seller", how="semi")


def query_9(auction: Auction) -> bl.Collection:
    """Returns the winning bid of each auction."""
    return auction.winning


def query_10(auction: Auction) -> bl.Collection:
    """Returns every event, with its window of ten seconds, which is the folder of the event."""
    return auction.events.window_into(bl.FixedWindows("10s"))


def query_11(auction: Auction) -> bl.Collection:
    """Returns the number of bids that a person makes without a pause."""
    return auction.bids.window_into(bl.Sessions("10s")).group_by("bidder").aggregate(bids=bl.count())


def query_12(auction: Auction) -> bl.Collection:
    """Returns the number of bids of each person within ten seconds of processing time."""
    paced = bl.Repeatedly(bl.AfterCount(1))
    return auction.bids.window_into(trigger=paced).group_by("bidder").aggregate(bids=bl.count())


def query_13(auction: Auction) -> bl.Collection:
    """Returns bids with a value of a table."""
    keyed, row = auction.bids.with_columns(key=bl.col("auction") % 10_000), bl.lookup(auction.side, on="key")
    return keyed.filter(row.found()).with_columns(value=row["value"]).drop("key")


def query_14(auction: Auction) -> bl.Collection:
    """Returns bids above a price, with the time of day, and the number of letters c in their channel."""
    euros, hour = bl.col("price") * EURO, bl.col("at").dt.hour()
    time_of_day = (
        bl.when(hour.is_between(8, 18))
        .then(bl.lit("day"))
        .otherwise(bl.when((hour <= 6) | (hour >= 20)).then(bl.lit("night")).otherwise(bl.lit("other")))
    )
    chosen = auction.bids.with_columns(price=euros).filter(
        bl.col("price") > 1_000_000, bl.col("price") < 50_000_000
    )
    return chosen.with_columns(time_of_day=time_of_day).map_batches(with_c_count)


def with_c_count(bids: pl.DataFrame) -> pl.DataFrame:
    """Adds the number of lower-case c in the channel."""
    count = pl.col("channel").str.count_matches("c", literal=True)
    return bids.with_columns(c_count=count.cast(pl.Int64))


def query_15(auction: Auction) -> bl.Collection:
    """Returns bids, bidders and auctions of each day, by price."""
    days = auction.bids.window_into(bl.FixedWindows("1d"), **EARLY)
    return days.aggregate(**distinct()).with_columns(day=bl.window_start())


def query_16(auction: Auction) -> bl.Collection:
    """Returns bids, bidders and auctions of each channel and day, by price, and the last minute of a bid."""
    days = auction.bids.window_into(bl.FixedWindows("1d"), **EARLY).group_by("channel")
    counts = days.aggregate(**distinct(), last=bl.max("at"))
    last_minute = bl.col("last").dt.to_string("%H:%M")
    return counts.with_columns(day=bl.window_start(), last_minute=last_minute).drop("last")


def by_class(name: str, aggregate: Callable[..., Any], *column: str) -> dict[str, Any]:
    """Returns an aggregate of all bids, and of those of each class of prices."""
    return {f"{name}{suffix}": aggregate(*column, where=where) for suffix, where in CLASSES.items()}


def distinct() -> dict[str, Any]:
    """Returns the numbers of bids, bidders and auctions, by class."""
    return {
        **by_class("bids", bl.count),
        **by_class("bidders", bl.count_distinct, "bidder"),
        **by_class("auctions", bl.count_distinct, "auction"),
    }


def query_17(auction: Auction) -> bl.Collection:
    """Returns the bids of each auction and day, by price."""
    days = auction.bids.window_into(bl.FixedWindows("1d"), **EARLY).group_by("auction")
    return days.aggregate(
        **by_class("bids", bl.count),
        min_price=bl.min("price"),
        max_price=bl.max("price"),
        mean_price=bl.mean("price"),
        sum_price=bl.sum("price"),
    ).with_columns(day=bl.window_start())


def query_18(auction: Auction) -> bl.Collection:
    """Returns the last bid of each person for each auction."""
    so_far = auction.bids.window_into(**EARLY).group_by("bidder", "auction")
    rest = ["price", "channel", "url", "at"]
    return so_far.aggregate(bid=bl.arg_max(rest, by=["at", "price", "channel", "url"])).unnest("bid")


def query_19(auction: Auction) -> bl.Collection:
    """Returns the ten highest bids of each auction."""
    so_far = auction.bids.window_into(**EARLY).group_by("auction")
    highest = so_far.aggregate(bid=bl.top(["at", "bidder", "channel", "url", "price"], 10, by="price"))
    return highest.explode("bid", number="rank").unnest("bid")


def query_20(auction: Auction) -> bl.Collection:
    """Returns bids with their auctions, of category 10."""
    auctions = auction.auctions.filter(bl.col("category") == 10).rename({"at": "auction_at"})
    return auction.bids.join(auctions, left_on="auction", right_on="id", keep_forever=True)


def query_21(auction: Auction) -> bl.Collection:
    """Returns bids with the id of their channel."""
    named = bl.regexp_extract("url", "[?&]channel_id=([^&]+)")
    for channel, number in {"Baidu": "3", "Facebook": "2", "Google": "1", "Apple": "0"}.items():
        named = bl.when(bl.col("channel") == channel).then(bl.lit(number)).otherwise(named)
    return auction.bids.with_columns(channel_id=named).filter(~bl.col("channel_id").is_null())


def query_22(auction: Auction) -> bl.Collection:
    """Returns bids with the directories of their url."""
    parts = bl.col("url").str.split("/")
    return auction.bids.with_columns(**{f"dir{number}": parts.list.get(number + 2) for number in (1, 2, 3)})


QUERIES: Final[Mapping[int, Callable[[Auction], bl.Collection]]] = {
    number: globals()[f"query_{number}"] for number in range(23)
}
