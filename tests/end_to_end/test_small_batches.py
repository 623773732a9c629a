"""The cost of a small batch comes from its queries and Python calls, not its rows; so their numbers are bounded."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from tests.support import small_batches

QUERIES = 8
CALLS = 7_700


def test_a_small_batch_takes_few_queries_and_python_calls() -> None:
    # In a process of its own, since polars counts its threads once.
    command = [sys.executable, "-m", small_batches.__name__]
    done = subprocess.run(
        command, env=os.environ | {"POLARS_MAX_THREADS": "1"}, stdout=subprocess.PIPE, check=True
    )
    found = json.loads(done.stdout)
    # The measured queries, and slightly above the measured calls. Lower them when these decrease: docs/architecture.md
    # says how.
    assert found["queries"] <= QUERIES
    assert found["calls"] <= CALLS
