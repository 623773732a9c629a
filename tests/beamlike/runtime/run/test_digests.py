"""Digests of a program's own data, which several runs of one pipeline may compute at the same time."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.places import ROOT

AT_THE_SAME_TIME = """
from concurrent.futures import ThreadPoolExecutor
import polars as pl
import beamlike as bl
from beamlike.runtime.run.digests import digest_of_rows, digest_of_streams

rows = bl.Rows([{"n": n} for n in range(1_000)])
stream = bl.TestStream({"n": int}).add_elements([{"n": n} for n in range(1_000)])
p = bl.Pipeline("p")
p.read("stream", stream).write("out", bl.Memory())
plan = p.plan()
digest = {"rows": lambda _: digest_of_rows(rows), "stream": lambda _: digest_of_streams(plan)}[KIND]
with ThreadPoolExecutor(2) as threads:
    assert len({*threads.map(digest, range(500))}) == 1
"""


@pytest.mark.parametrize("kind", ["rows", "stream"])
def test_runs_that_share_a_frame_do_not_wait_for_each_other(kind: str) -> None:
    """The test needs a process of its own, because deadlocked threads never end."""
    code = AT_THE_SAME_TIME.replace("KIND", repr(kind))
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)
