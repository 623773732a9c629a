"""The benchmark of objects: a job with objects has the same results as the one with dicts."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import objects


@pytest.mark.parametrize("name", objects.jobs(20))
def test_objects_and_dicts_have_the_same_results(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pair = objects.jobs(20)[name](tmp_path)
    assert pair.check(pair.job(), pair.baseline())
