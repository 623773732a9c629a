"""Rows that arrive and are retracted in one bundle are left out; all others stay."""

from __future__ import annotations

from collections import Counter

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from stages.changes import summed
from tests.support.examples import share
from windowing.columns import EVENT_TIME, PANE_INDEX, PANE_RETRACTED

some = share(1)
Row = tuple[str | None, list[int] | None, int, bool, int]
SCHEMA = {
    "key": pl.String(),
    "values": pl.List(pl.Int64()),
    EVENT_TIME: pl.Int64(),
    PANE_RETRACTED: pl.Boolean(),
    PANE_INDEX: pl.Int64(),
}
rows = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", None]),
        st.sampled_from([[1], [], None]),
        st.integers(0, 1),
        st.booleans(),
        st.integers(0, 9),
    ),
    max_size=30,
)


def net(bundle: list[Row]) -> Counter[str]:
    """Returns how often each content remains; negative where it is retracted more often."""
    found: Counter[str] = Counter()
    for *content, retracted, _ in bundle:
        found[str(content)] += -1 if retracted else 1
    return Counter({content: count for content, count in found.items() if count})


@some
@given(rows)
def test_a_bundle_is_summed_up_to_its_net_content(bundle: list[Row]) -> None:
    before = pl.DataFrame(bundle, SCHEMA, orient="row")
    after = list(summed(before).rows())
    assert net(after) == net(bundle)
    assert len(after) == sum(map(abs, net(bundle).values()))
    remaining = iter(bundle)
    assert all(any(row == given for given in remaining) for row in after)  # in their order


def test_rows_that_are_never_retracted_stay_as_they_are() -> None:
    frame = pl.DataFrame({"key": ["a", "a"], EVENT_TIME: [1, 1]})
    assert summed(frame) is frame
