"""Hypothesis strategies of keyed state and timers: scripts composed of snippets, and streams to play them on.

Timers: t, u and the family f by event time, d, a heartbeat, p and h by processing time, of which h holds.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
from hypothesis import strategies as st

from tests.support.model_calls import Row
from tests.support.process_script import END, START, Script, Windows

TIMERS = {
    "t": "event", "u": "event", "f": "event", "d": "event drop", "p": "processing", "h": "processing hold",
}  # fmt: skip
STATE = {"n": 0, "c": 0, "last": None, "bag": []}

# Snippets whose results do not depend on bundles, if rows are played in order of time.
OF_ROWS = [
    "s.n += 1", "s.bag = s.bag + [v]", "s.bag.append(v)", "s.last = now", "if s.n > 2: s.n = 0",
    "s.bag = []", "if v == 7: clear_all()",
    "emit(key + str(s.n))", "emit(key + join(s.bag))", "emit(f'{key}{s.last}', now + 3)", "if v % 4 == 0: 1 / 0",
    "after('t', 5)", "set('u', now + 7, out=now + 2)", "clear('t')", "clear('u')", "emit(f'{key}{timer(\"t\")}')",
    "after('f', 4, tag=str(v % 3))", "clear('f')", "clear('f', tag='1')", "after('f', 2, out=now + 1, tag='a')",
    "s.last = v", "emit(s.n, now - 1)",
]  # fmt: skip
OF_FIRINGS = [
    "s.n += 1", "s.last = now", "s.bag = []", "s.bag = s.bag + [tag]", "1 / (s.n % 3)", "emit(key, now + 2)",
    "emit(f'{key}{s.n}{tag}')", "emit(f'{key}{now}')", "emit(key + join(s.bag))", "emit(f'{key}{s.last}')",
    "clear('f')", "clear('u')", "s.c += 1\nif s.c < 9: after('t', 6)", "s.c += 1\nif s.c < 9: after('f', 3, tag='b')",
    "s.c += 1\nif s.c < 9: set('u', now + 4, out=now + 1)", "emit(win[0])",
]  # fmt: skip
EXPIRING = ["emit(f'{key} gone {s.n}')", "emit(key + join(s.bag)); 1 / (s.n % 3)", "emit(s.last)"]

# Snippets whose results depend on the bundle.
AT_ONCE = [
    "emit(f'{key}{late}')", "emit(f'{key}{W}')", "emit(f'{key}{P}')",
    "after('p', 3)", "after('p', 3, out=now + 1)", "after('h', 4)", "after('h', 4, out=now + 2)", "clear('p')",
    "clear('h')", "after('d', 6)", "set('p', 5)", "emit(f'{key}{timer(\"p\")}')",
]  # fmt: skip
AFTER_ONCE = [
    "emit(at_end)", "s.c += 1\nif s.c < 9: after('p', 2)",
    "s.c += 1\nif s.c < 9: after('h', 2)", "s.c += 1\nif s.c < 9: after('d', 5)", "clear('p')",
    "win[1] < 99 or after('d', 5)",
    "emit(f'{key}{P}')", "emit(f'{key}{W}')",
]  # fmt: skip
INTO_THE_PAST = ["set('t', v * 4)", "set('f', 20, tag=str(v))"]
FIRING_INTO_THE_PAST = ["s.c += 1\nif s.c < 9: set('f', now - 3, tag='9')"]

orders = st.sampled_from(["time", "arrival"])
windows = st.sampled_from([Windows(), Windows(10), Windows(10, 5), Windows(12, 4)])


def texts(snippets: Sequence[str], most: int = 6) -> st.SearchStrategy[str]:
    """Draws scripts of several snippets."""
    return st.lists(st.sampled_from(snippets), min_size=1, max_size=most).map("\n".join)


@st.composite
def scripts(
    draw: st.DrawFn, rows: Sequence[str], firings: Sequence[str], order: st.SearchStrategy[str] = orders
) -> Script:
    """Draws a script whose calls are made of these snippets."""
    ttl = st.sampled_from(
        [("event", 8.0), ("processing", 5.0)] if "after('p', 3)" in rows else [("event", 8.0)]
    )
    return Script(
        element=draw(texts(rows)),
        fire={name: draw(texts(firings, 3)) for name in TIMERS},
        expire=draw(st.sampled_from([None, None, *EXPIRING])),
        timers=TIMERS,
        state=STATE,
        ttl=draw(st.dictionaries(st.sampled_from(["n", "last", "bag"]), ttl, max_size=2)),
        windows=draw(windows),
        lateness=draw(st.sampled_from([0, 0, 5])),
        order=draw(order),
        others=("set('f', 0, tag='')",),  # it is a family, whether or not it is set
    )


@attrs.frozen
class Bundle:
    """A step: rows, and then the new clocks, if they move."""

    rows: tuple[Row, ...] = ()
    watermark: float | None = None
    processing_time: float | None = None


rows = st.builds(Row, st.sampled_from(["a", "b", "c"]), st.integers(0, 9), st.integers(-5, 40))


@st.composite
def streams(draw: st.DrawFn) -> list[Bundle]:
    """Draws rows of any time, late ones among them, and clocks that move now and then; at last the input ends."""
    watermark, now, bundles = START, 0, []
    for _ in range(draw(st.integers(1, 8))):
        moved = draw(st.sampled_from(["no clock", "watermark", "processing time"]))
        some = tuple(draw(st.lists(rows, max_size=5))) if moved != "processing time" else ()
        if moved == "watermark":
            watermark = (-5 if watermark == START else watermark) + draw(st.integers(1, 15))
        if moved == "processing time":
            now += draw(st.integers(1, 6))
        bundles.append(
            Bundle(
                some, watermark if moved == "watermark" else None, now if moved == "processing time" else None
            )
        )
    return [*bundles, Bundle((), END)]


@st.composite
def punctual_streams(draw: st.DrawFn, given: Sequence[Row]) -> list[Bundle]:
    """Draws bundles of these rows, none of them late, with arbitrary watermarks and processing times."""
    watermark, now, bundles, left = START, 0, [], list(given)
    while left:
        size = draw(st.integers(0, 5))
        taken, left = left[:size], left[size:]
        latest = min((row.time for row in left), default=40)
        reached = draw(st.integers(-10, 40))
        moved = watermark < reached <= latest
        watermark = reached if moved else watermark
        bundles.append(Bundle(tuple(taken), watermark if moved else None))
        if draw(st.booleans()):
            now += draw(st.integers(1, 6))
            bundles.append(Bundle((), None, now))
    return [*bundles, Bundle((), END)]


crowds = st.lists(rows, max_size=15).flatmap(
    lambda some: st.lists(st.integers(0, 8), min_size=len(some), max_size=len(some)).map(
        lambda delays: [row for _, row in sorted(zip(delays, some, strict=True), key=_arrival)]
    )
)
"""Rows roughly in order of time, so that watermarks advance between them."""


def _arrival(delayed: tuple[int, Row]) -> float:
    return delayed[0] + delayed[1].time
