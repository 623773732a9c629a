"""Law: a pipeline with any names of columns is the same when it is read from its file."""

from __future__ import annotations

import keyword

import narwhals as nw
from hypothesis import example, given
from hypothesis import strategies as st

import beamlike as bl
from beamlike.expressions.grammar import AGGREGATES, FUNCTIONS, VALUES
from beamlike.io.base import SHOWN
from beamlike.spec import kinds
from tests.support.round_trip import require_same_from_file

PARAMETERS = {
    name
    for method in {**kinds.methods(), **kinds.grouped_methods()}.values()
    for name in kinds.settable(method)
}
WORDS = [
    *FUNCTIONS,
    *AGGREGATES,
    *VALUES,
    *kinds.constructors(),
    *kinds.methods(),
    *PARAMETERS,
    *keyword.kwlist,
]
ODD = [
    "a b",
    *[
        "a-b",
        "a.b",
        "a:b",
        "json:dumps",
        "'a'",
        '"',
        "${x}",
        "1",
        "08",
        "1h",
        "null",
        "~",
        "ﬁ",
        "aB",
        "Aa",
        "[a]",
    ],
]
NAMES = st.one_of(
    st.sampled_from(sorted({*WORDS} - {"self", *SHOWN})),
    st.sampled_from(ODD),
    # Names such as * and ^a$ are patterns, and refused.
    st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="*^"), min_size=1, max_size=5),
)


@given(st.lists(NAMES, min_size=2, max_size=2, unique=True))
@example(["a-b", "count"])
@example(["mapping", "types"])
@example(["json:dumps", "columns"])
def test_names_of_columns_are_the_same_from_the_file(names: list[str]) -> None:
    first, second = names
    p = bl.Pipeline("p")
    given = bl.Rows([{first: True, second: 3, "time of it": 0}])
    watermark = bl.MonotonousTimestamps()
    read = p.read("rows", given, timestamp="time of it", timestamp_unit="s", watermark=watermark)
    rows = read.window_into(bl.FixedWindows("1d"))
    made = [
        rows.select(first, second),
        rows.select([first, nw.col(second)]),
        rows.select(**{first: second}),
        rows.with_columns(second, **{first: nw.col(second) + 1}),
        rows.filter(first, nw.col(second) > 3),
        rows.rename({first: "other name"}),
        rows.rename({first: second, second: first}),
        rows.cast({second: float}),
        rows.drop(first),
        rows.group_by(first).aggregate(**{second: bl.max(second, where=nw.col(first))}),
        rows.aggregate(**{first: bl.arg_max([first, second], by=second)}),
        rows.dedup(second, within="1h"),
        rows.latest(first),
    ]
    for number, one in enumerate(made):
        one.write(f"sink {number}", bl.Memory())
    assert require_same_from_file(p, p.plan())
