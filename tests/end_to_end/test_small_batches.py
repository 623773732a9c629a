"""The cost of a small batch comes from its queries and Python calls, not its rows; so their numbers are bounded."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from tests.support import small_batches

# The measured queries, and slightly above the measured calls. Lower them when these decrease: docs/architecture.md says
# how.
MOST = {
    "flagship": {"queries": 8, "calls": 7_700},
    "windows": {"queries": 2, "calls": 3_050},
    "messages": {"queries": 1, "calls": 1_050},
}


def test_a_small_batch_takes_few_queries_and_python_calls() -> None:
    # In a process of its own, since polars counts its threads once.
    command = [sys.executable, "-m", small_batches.__name__]
    done = subprocess.run(
        command, env=os.environ | {"POLARS_MAX_THREADS": "1"}, stdout=subprocess.PIPE, check=True
    )
    found = json.loads(done.stdout)
    assert found.keys() == MOST.keys()
    for job, most in MOST.items():
        assert found[job]["queries"] <= most["queries"], job
        assert found[job]["calls"] <= most["calls"], job
