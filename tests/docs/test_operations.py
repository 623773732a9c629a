"""The commands of docs/operations.md do what the page says."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from beamlike.cli.main import main
from tests.support.places import ROOT

PAGE = (ROOT / "docs" / "operations.md").read_text()


@pytest.mark.slow
@pytest.mark.spark
def test_the_commands_of_the_page_move_a_run_to_five_shards(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [code] = re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S)
    commands = re.findall(r"^\$ beamlike (.*)$", PAGE, re.M)
    assert [command.split()[0] for command in commands] == ["run", "savepoint", "restore", "run"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "plays", raising=False)
    (tmp_path / "plays.py").write_text(code)
    (tmp_path / "data").mkdir()
    for number, command in enumerate(commands):
        play = f'{{"user": "ada", "at": {10 * number}, "score": {10**number}}}\n'
        (tmp_path / "data" / f"{number}.jsonl").write_text(play)
        result = CliRunner().invoke(main, command.split())
        assert result.exit_code == 0, result.output
    monkeypatch.delitem(sys.modules, "plays", raising=False)
    # One session from the first run to the last, whose plays were each read once.
    totals = pl.concat([pl.read_ndjson(file) for file in (tmp_path / "totals").glob("*.jsonl")])
    assert totals.select("user", "total").rows() == [("ada", 1111)]
