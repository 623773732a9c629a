"""Several attempts at a task, in sequence or at the same time: sinks have the rows of one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.attempts import AS_IT_SHOULD_BE, CASES
from tests.faults.trials import attempts
from tests.support.databases import postgres
from tests.support.spark_versions import STORES


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.spark
@pytest.mark.parametrize("state", STORES)
def test_sinks_have_the_rows_of_one_attempt_at_a_task(tmp_path: Path, state: str) -> None:
    with postgres() as url:
        assert attempts(tmp_path, url, state) == [f"{case}: {AS_IT_SHOULD_BE}" for case in CASES]
