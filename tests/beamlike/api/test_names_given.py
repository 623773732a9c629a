"""Names that are missing, of another type or in another case: an error when the step is declared, with a hint."""

from __future__ import annotations

from typing import Any

import pytest

import beamlike as bl
from beamlike.errors import UnknownColumn, WrongType, nearest
from tests.support.pipelines import plays

STRATEGY = bl.MonotonousTimestamps()


def test_none_is_no_name_of_a_source_or_sink() -> None:
    none: Any = None
    with pytest.raises(WrongType, match="read takes a name first"):
        bl.Pipeline("p").read(none, bl.Rows([{"at": 1}]))
    with pytest.raises(WrongType, match="write takes a name first"):
        plays().write(none, bl.Memory())


@pytest.mark.parametrize("given", [bl.col("at") * 1000, ["at"]])
def test_an_event_time_is_the_name_of_a_column(given: Any) -> None:
    rows = bl.Rows([{"at": 1}])
    with pytest.raises(WrongType, match=r"step 'plays': timestamp= is the name of a column, not .*at"):
        bl.Pipeline("p").read("plays", rows, timestamp=given, timestamp_unit="ms", watermark=STRATEGY)
    untimed = bl.Pipeline("p").read("plays", rows)
    with pytest.raises(WrongType, match=r"step 'plays.with_watermark': timestamp= is the name of a column"):
        untimed.with_watermark(STRATEGY, given)


def test_a_name_in_another_case_is_the_nearest() -> None:
    """A user of SQL or Spark does not look at the case of names."""
    with pytest.raises(UnknownColumn, match=r"there is no column 'USER'.*; did you mean 'user'"):
        plays().filter(bl.col("USER") == "ada")
    assert nearest("X", ["u", "x"]) == "; did you mean 'x'?"
    assert nearest("scoer", ["Score", "rate"]) == "; did you mean 'Score'?"
    assert nearest("zz", ["u", "x"]) == ""


def test_an_unknown_field_of_a_struct_is_named() -> None:
    rows = bl.Pipeline("p").read("rows", bl.Rows([{"place": {"city": "Rome"}}]))
    with pytest.raises(WrongType, match=r"step 'rows.filter': cannot compute .*: there is no field 'town'"):
        rows.filter(bl.col("place").struct.field("town") == "Rome")
