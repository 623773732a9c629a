"""The events of Nexmark, each a pure function of its number and a seed, made as whole columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs
import numpy as np
import polars as pl
from attrs.validators import and_, ge, instance_of, le

from benchmarks.nexmark.chance import Chance, Ints

KINDS: Final = ("persons", "auctions", "bids")
EPOCH: Final = 50
"""The number of events in a cycle: a person first, then `AUCTIONS` auctions, then bids."""
AUCTIONS: Final = 3
FIRST_ID: Final = 1_000
FIRST_TIME: Final = 1_767_225_547_000_000
"""2025-12-31T23:59:07Z in microseconds, so that a day ends soon."""

_HOT: Final = 100  # the first of this many auctions, persons or sellers is hot
_AUCTIONS_AHEAD: Final = 100  # an auction lives, on average, until this many more have appeared
_ACTIVE_AUCTIONS, _ACTIVE_PEOPLE = 100, 1_000  # the newest, of which those that are not hot are chosen
_CHANNELS: Final = 10_000
_HOT_CHANNELS: Final = ("Google", "Facebook", "Baidu", "Apple")
_CATEGORIES: Final = (10, 5)  # the first, and how many
_FIRST_NAMES = (
    "Peter",
    "Paul",
    "Luke",
    "John",
    "Saul",
    "Vicky",
    "Kate",
    "Julie",
    "Sarah",
    "Deiter",
    "Walter",
)
_LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
_CITIES = (
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
)
_STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
_TIME = pl.Datetime("us", "UTC")
_LETTERS = np.array(list("abcdefghijklmnopqrstuvwxyz"))
_WORDS: Final = 4_096


def _whole(least: int, most: int | None = None) -> object:
    return and_(instance_of(int), ge(least), *(() if most is None else (le(most),)))


@attrs.frozen
class Nexmark:
    """The parameters of events. Event `n` has the time `start + n / rate`: microseconds, and events per second.

    With `lead`, a bid may be for an auction whose id is up to `lead` ahead of the newest.
    """

    seed: int = attrs.field(default=1, validator=_whole(0))
    rate: int = attrs.field(default=10_000, validator=_whole(1))
    start: int = attrs.field(default=FIRST_TIME, validator=instance_of(int))
    lead: int = attrs.field(default=0, validator=_whole(0))

    @property
    def chance(self) -> Chance:
        """The random numbers of the seed."""
        return Chance(self.seed)

    def times(self, numbers: Ints) -> Ints:
        """Returns the event times in microseconds."""
        whole, rest = np.divmod(numbers, self.rate)
        return self.start + whole * 1_000_000 + rest * 1_000_000 // self.rate

    def persons(self, numbers: Ints) -> pl.DataFrame:
        """Returns the persons among the events with these numbers."""
        n = numbers[numbers % EPOCH == 0]
        chance = self.chance
        first, last = _chosen(_FIRST_NAMES, chance, "first", n), _chosen(_LAST_NAMES, chance, "last", n)
        card = [chance.below(f"card {part}", n, 10_000) for part in range(4)]
        columns = {
            "id": FIRST_ID + n // EPOCH,
            "name": pl.select(pl.concat_str(first, last, separator=" ")).to_series(),
            "email": pl.select(pl.concat_str(first, last, separator=".") + "@example.com").to_series(),
            "credit_card": _joined([_digits(part, 4) for part in card], " "),
            "city": _chosen(_CITIES, chance, "city", n),
            "state": _chosen(_STATES, chance, "state", n),
            "at": self.times(n),
        }
        return _frame(columns)

    def auctions(self, numbers: Ints) -> pl.DataFrame:
        """Returns the auctions among the events with these numbers."""
        place = numbers % EPOCH
        n = numbers[(place >= 1) & (place <= AUCTIONS)]
        chance, at = self.chance, self.times(n)
        # In whole milliseconds from 1 to twice the time in which that many auctions appear.
        longest = max(1, 2 * _AUCTIONS_AHEAD * EPOCH * 1_000 // (AUCTIONS * self.rate))
        initial = self._price("initial", n)
        seller = self._person("seller", n, hot_plus=0)
        columns = {
            "id": _newest_auction(n),
            "item": _joined([self._words("item", n), self._words("item 2", n)], " "),
            "description": _joined([self._words(f"description {part}", n) for part in range(8)], " "),
            "initial_bid": initial,
            "reserve": initial + self._price("reserve", n),
            "at": at,
            "expires": at + 1_000 * (1 + chance.below("lives", n, longest)),
            "seller": seller,
            "category": _CATEGORIES[0] + chance.below("category", n, _CATEGORIES[1]),
        }
        return _frame(columns)

    def bids(self, numbers: Ints) -> pl.DataFrame:
        """Returns the bids among the events with these numbers."""
        n = numbers[numbers % EPOCH > AUCTIONS]
        chance = self.chance
        newest = _newest_auction(n)
        hot = newest // _HOT * _HOT
        others = np.minimum(newest - FIRST_ID + 1, _ACTIVE_AUCTIONS)
        cold = newest + self.lead - chance.below("auction", n, others + self.lead)
        number = chance.below("channel", n, _CHANNELS)
        popular = chance.uniform("hot channel", n) < 0.5
        columns = {
            "auction": np.where(chance.uniform("hot auction", n) < 0.5, hot, cold),
            "bidder": self._person("bidder", n, hot_plus=1),
            "price": self._price("price", n),
            **self._channels(n, number, popular),
            "at": self.times(n),
        }
        return _frame(columns)

    def _channels(self, n: Ints, number: Ints, popular: np.ndarray) -> dict[str, pl.Series]:
        """Returns `channel` and `url`; the first names are those of the popular channels."""
        chance, every = self.chance, np.arange(_CHANNELS, dtype=np.int64)
        names = pl.Series([*_HOT_CHANNELS, *(f"channel-{each}" for each in every)])
        told = chance.uniform("channel id", every) < 0.9
        ends = pl.Series(
            ["", *(f"&channel_id={each}" if tells else "" for each, tells in zip(every, told, strict=True))]
        )
        channel = np.where(
            popular, chance.below("popular", n, len(_HOT_CHANNELS)), number + len(_HOT_CHANNELS)
        )
        url = pl.select(
            pl.concat_str(
                pl.lit("https://www.nexmark.com/"),
                *(part for place in range(3) for part in (self._words(f"dir {place}", n), pl.lit("/"))),
                pl.lit("item.htm?query=1"),
                ends.gather(np.where(popular, 0, number + 1)),
            )
        )
        return {"channel": names.gather(channel), "url": url.to_series()}

    def _person(self, use: str, n: Ints, hot_plus: int) -> Ints:
        """Returns the hot person three times out of four, else one of the newest."""
        newest = FIRST_ID + n // EPOCH
        active = np.minimum(newest - FIRST_ID + 1, _ACTIVE_PEOPLE)
        cold = newest - self.chance.below(use, n, active)
        return np.where(self.chance.uniform(f"hot {use}", n) < 0.75, newest // _HOT * _HOT + hot_plus, cold)

    def _price(self, use: str, n: Ints) -> Ints:
        """Returns prices in cents, from 100 to 100,000,000, with a uniform logarithm."""
        return np.round(100 * 10 ** (6 * self.chance.uniform(use, n))).astype(np.int64)

    def _words(self, use: str, n: Ints) -> pl.Series:
        letters = self.chance.below("letters", np.arange(_WORDS * 5, dtype=np.int64), len(_LETTERS))
        words = pl.Series(["".join(word) for word in _LETTERS[letters].reshape(_WORDS, 5)])
        return words.gather(self.chance.below(use, n, _WORDS))


def side() -> pl.DataFrame:
    """Returns the table of query 13: a text for each of 10,000 keys."""
    keys = pl.DataFrame({"key": pl.int_range(10_000, dtype=pl.Int64, eager=True)})
    return keys.with_columns(value=pl.format("value {}", "key"))


def _newest_auction(n: Ints) -> Ints:
    """Returns the id of the newest auction when event `n` happens, itself included."""
    epoch, place = np.divmod(n, EPOCH)
    return FIRST_ID + AUCTIONS * epoch + np.minimum(place, AUCTIONS) - 1


def _chosen(words: Sequence[str], chance: Chance, use: str, n: Ints) -> pl.Series:
    return pl.Series(list(words)).gather(chance.below(use, n, len(words)))


def _digits(numbers: Ints, width: int) -> pl.Series:
    return pl.Series(numbers).cast(pl.String).str.zfill(width)


def _joined(parts: Sequence[pl.Series], separator: str) -> pl.Series:
    return pl.select(pl.concat_str(list(parts), separator=separator)).to_series()


def _frame(columns: dict[str, object]) -> pl.DataFrame:
    times = [name for name in ("at", "expires") if name in columns]
    return pl.DataFrame(columns).with_columns(pl.col(times).cast(_TIME))
