"""The README shows real output: its Python is run, and its tables and messages are compared."""

from __future__ import annotations

import contextlib
import io
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
import polars as pl
import pytest
from click.testing import CliRunner

import beamlike as bl
from beamlike.cli.main import main
from tests.support.places import ROOT

README = (ROOT / "README.md").read_text()
_BLOCK = re.compile(
    r"^```python(?P<no_run> no-run)?\n(?P<code>.*?)^```\n(?P<after>.*?)(?=^```|^#|\Z)", re.M | re.S
)


@attrs.frozen
class Block:
    """A block of Python, the output that the README shows below it, and its real output."""

    code: str
    shown: str
    printed: str


@pytest.fixture(scope="module")
def blocks(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Block], dict[str, Any], Path]:
    """All blocks, run one after the other in one namespace and one folder."""
    folder, namespace, ran = tmp_path_factory.mktemp("readme"), {}, []
    with contextlib.chdir(folder), pl.Config(tbl_width_chars=200):
        for block in _BLOCK.finditer(README):
            if not block["no_run"]:
                with contextlib.redirect_stdout(io.StringIO()) as out:
                    exec(compile(block["code"], "README.md", "exec"), namespace)
                ran.append(Block(block["code"], block["after"], out.getvalue()))
    return ran, namespace, folder


def table(text: str) -> list[list[str]]:
    """Returns the cells of the first table in a text, its header first, without the types that polars shows."""
    rows = [
        [cell.strip() for cell in re.split("[│┆]", line)[1:-1]] for line in text.splitlines() if "│" in line
    ]
    end = text.find("└")
    count = len([line for line in text[:end].splitlines() if "│" in line])
    return [row for row in rows[:count] if row[0] not in ("---", "") and "[" not in row[0]]


def test_there_are_examples_and_each_prints_something(blocks: Any) -> None:
    ran, _, _ = blocks
    assert len(ran) == 3
    assert all(block.printed for block in ran)


def test_a_table_below_an_example_is_what_it_prints(blocks: Any) -> None:
    with_tables = [block for block in blocks[0] if "│" in block.shown]
    assert with_tables
    for block in with_tables:
        assert table(block.printed) == table(block.shown)
        assert len(table(block.shown)) > 1


def test_the_first_example_counts_and_keeps_what_has_no_time(blocks: Any) -> None:
    _, namespace, folder = blocks
    run = namespace["run"]
    (source,) = run.batches[0].sources.values()
    assert (source.elements, source.dead_letters) == (4, 1)
    letters = bl.JSONLines(folder / run.dead_letters)
    (row,) = pl.concat(list(letters.chunks(10))).collect().rows(named=True)
    assert row["step"] == "plays"
    assert "never" in row["error"]
    stage = run.batches[0].stages["plays.aggregate"]
    assert stage.elements == 4
    assert stage.output <= stage.input
    assert {"panes", "dropped"} <= {field.name for field in attrs.fields(type(stage))}


def test_the_second_example_has_an_early_guess_the_result_and_a_pane_per_late_element(blocks: Any) -> None:
    _, namespace, _ = blocks
    minutes = [datetime(1970, 1, 1, 0, minute, tzinfo=UTC) for minute in range(3)]
    panes = namespace["panes"].frame().select("window_start", "clicks", "pane_timing", "pane_index")
    assert panes.rows() == [
        (minutes[0], 3, "early", 0),
        (minutes[0], 3, "on_time", 1),
        (minutes[0], 4, "late", 2),
        (minutes[1], 1, "on_time", 0),
        (minutes[0], 5, "late", 3),
        (minutes[2], 1, "on_time", 0),
    ]


def test_the_error_that_is_shown_is_the_one_that_comes(blocks: Any) -> None:
    lengths = blocks[1]["lengths"]
    with pytest.raises(bl.PlanError) as caught:
        lengths.aggregate(mean=bl.mean("lenght"))
    _, _, message = str(caught.value).partition("': ")
    assert f": {message}\n" in README


def test_names_that_are_mentioned_exist() -> None:
    for name in set(re.findall(r"\bbl\.(\w+)", README)):
        assert hasattr(bl, name), name
    (aggregates,) = re.findall(r"\| aggregates \| `([^`]*)`", README)
    assert all(hasattr(bl, name) for name in aggregates.split())
    for line in ("windows", "watermarks", "sinks", "sources"):
        (names,) = re.findall(rf"\| {line} \| (.*) \|", README)
        assert all(hasattr(bl, name) for name in re.findall(r"`([A-Z]\w+)", names)), line


def test_pipelines_that_are_mentioned_can_be_explained() -> None:
    targets = set(re.findall(r"^    beamlike (?:run|explain) (\S+)", README, re.M))
    assert targets
    for target in targets:
        result = CliRunner().invoke(main, ["explain", target])
        assert result.exit_code == 0, result.output


def test_files_that_are_linked_exist() -> None:
    root = ROOT
    for target in set(re.findall(r"\]\((?!https?:|#)([^)]+)\)", README)):
        assert (root / target.partition("#")[0]).exists(), target
