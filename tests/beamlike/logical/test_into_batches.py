"""Declarations of batches of rows, and invalid ones."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

import beamlike as bl
from beamlike.errors import UnboundedGrouping, WrongType
from tests.support.pipelines import plays

MINUTES = bl.FixedWindows("1m")


@pytest.mark.parametrize(
    ("limits", "kind", "told"),
    [
        ({}, bl.PlanError, "say when a batch is full: size= in rows, bytes=, or both"),
        ({"max_wait": "1m"}, bl.PlanError, "say when a batch is full"),
        ({"size": 0}, bl.PlanError, "size= must be at least 1, not 0"),
        ({"bytes": -1}, bl.PlanError, "bytes= must be at least 1, not -1"),
        ({"size": 2**70}, bl.PlanError, "size= must be at most 1,099,511,627,776, not 1,180,"),
        ({"size": "10"}, WrongType, "size= must be a whole number, not '10'"),
        ({"size": True}, WrongType, "size= must be a whole number, not True"),
        ({"size": 1, "max_wait": "soon"}, bl.PlanError, "max_wait: .*soon"),
    ],
)
def test_what_is_wrong_with_limits_is_told(limits: dict[str, Any], kind: type[Exception], told: str) -> None:
    with pytest.raises(kind, match=told):
        plays().group_by("user").group_into_batches(**limits)


def test_a_batch_has_the_keys_and_the_whole_rows() -> None:
    rows = plays()
    row = pl.List(pl.Struct(rows.schema))
    assert rows.group_by("user").group_into_batches(size=2).schema == {"user": pl.String(), "rows": row}
    assert rows.group_into_batches(bytes=100).schema == {"rows": row}


def test_it_tells_when_a_batch_is_full() -> None:
    batches = plays().group_by("user").group_into_batches(size=10, bytes=1_000, max_wait="90s")
    batches.write("out", bl.Memory())
    told = batches.pipeline.explain()
    assert "batches     10 rows or 1000 bytes, at most 1m30s" in told


def test_rows_of_an_input_without_end_must_not_wait_for_ever() -> None:
    endless = plays(bounded=False)
    with pytest.raises(UnboundedGrouping, match="give it max_wait=, or windows before"):
        endless.group_into_batches(size=10)
    endless.group_into_batches(size=10, max_wait="1m")
    endless.window_into(MINUTES).group_into_batches(size=10)


def test_a_key_must_not_have_the_name_of_the_rows() -> None:
    rows = plays().rename({"user": "rows"})
    with pytest.raises(
        bl.PlanError, match="a batch has its rows in 'rows', which is a key here; rename the key"
    ):
        rows.group_by("rows").group_into_batches(size=2)
