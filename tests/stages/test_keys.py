"""Keys formatted for people."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stages.keys import shown, shown_one

texts = st.text() | st.text("nul'", max_size=8) | st.text("ä€x", min_size=99, max_size=500)


@given(st.none() | texts)
@example("null")
@example("''null'")
@example("x" * 400)
@example("x" * 401)
@example("€" * 134)
def test_one_text_is_shown_as_among_others(text: str | None) -> None:
    key = pl.Series([text], dtype=pl.String)
    assert shown_one(key) == shown(key).item()


@pytest.mark.parametrize("value", [1, 1.5, True, b"\xff"])
def test_one_value_of_another_type_is_shown_as_among_others(value: object) -> None:
    assert shown_one(pl.Series([value])) == shown(pl.Series([value])).item()
