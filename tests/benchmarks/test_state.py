"""The benchmark of large state measures what it says."""

from __future__ import annotations

import pytest

from benchmarks.state_operators import OPERATORS, run


@pytest.mark.parametrize("operator", OPERATORS)
def test_every_operator_has_the_state_that_was_requested(operator: str) -> None:
    batches = run(OPERATORS[operator], rows=2_000, arrivals=100, batches=2)
    assert [batch.cpu > 0 for batch in batches] == [True, True]
    assert all(900 <= batch.live <= 2_200 for batch in batches)
    assert all(batch.read > 0 and batch.written > 0 for batch in batches)
