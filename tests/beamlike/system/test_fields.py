"""Arguments of a wrong type: the error names the class, the argument and the value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

import beamlike as bl


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (
            lambda: bl.LocalRunner("out"),
            "LocalRunner: chunk_rows must be a whole number of at least 1, not 'out'",
        ),
        (
            lambda: bl.LocalRunner(True),
            "LocalRunner: chunk_rows must be a whole number of at least 1, not True",
        ),
        (
            lambda: bl.Parquet("in", max_files_per_trigger=0),
            "Parquet: max_files_per_trigger must be a whole number of at least 1, not 0",
        ),
        (lambda: bl.Parquet("in", include_file_paths=1), "Parquet: include_file_paths must be text, not 1"),
        (lambda: bl.Callback(3), "Callback: fn must be a function, not 3"),
        (lambda: bl.Kafka("s:1", "t", headers="yes"), "Kafka: headers must be True or False, not 'yes'"),
        (lambda: bl.Calls(retries=-1), "Calls: retries must be a whole number of at least 0, not -1"),
    ],
)
def test_class_argument_and_value_are_named(made: Callable[[], Any], told: str) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        made()
    assert str(caught.value) == told


@pytest.mark.parametrize(
    "given", [pl.DataFrame({"n": [1]}), pl.DataFrame({"n": [1]}).to_pandas(), [{"n": 1}]]
)
def test_rows_that_are_given_as_a_source_are_to_be_wrapped(given: Any) -> None:
    with pytest.raises(TypeError, match=rf"got a {type(given).__name__}; did you mean bl\.Rows\(\.\.\.\)\?"):
        bl.Pipeline("p").read("rows", given)
