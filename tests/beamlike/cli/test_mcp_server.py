"""The MCP server: an agent reads the records of runs and changes nothing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters

import beamlike as bl
from beamlike.cli.mcp_server import server


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Two runs: one with open windows, and one that has ended."""
    folder = tmp_path_factory.mktemp("runs")
    found = []
    for name, drain in (("open", False), ("ended", True)):
        p = bl.Pipeline(name)
        rows = bl.Rows([{"user": "ada", "at": number} for number in range(100)], rows_per_batch=20)
        strategy = bl.BoundedOutOfOrderness("5s")
        plays = p.read("plays", rows, timestamp="at", timestamp_unit="s", watermark=strategy)
        counts = plays.window_into(bl.FixedWindows("1m")).group_by("user").aggregate(n=bl.count())
        counts.named("counts").write("out", bl.Memory())
        found.append(str(folder / name))
        p.run(bl.LocalRunner(checkpoint=found[-1], drain=drain, quiet=True))
    return found[0], found[1]


def ask(of: Any, tool: str, **arguments: Any) -> Any:
    """Returns the result that an agent receives: the value, or the text of an error."""

    async def asked() -> Any:
        async with Client(of) as client:
            result = await client.call_tool(tool, arguments)
            if result.is_error:
                return result.content[0].text  # type: ignore[union-attr]
            assert result.structured_content is not None
            return result.structured_content.get("result", result.structured_content)

    return anyio.run(asked)


def test_every_tool_is_read_only_and_says_what_it_does(runs: tuple[str, str]) -> None:
    async def listed() -> Any:
        async with Client(server(runs)) as client:
            return (await client.list_tools()).tools

    tools = anyio.run(listed)
    assert [tool.name for tool in tools] == ["runs", "status", "why", "stages", "batches", "tune"]
    assert all(tool.annotations.read_only_hint and tool.description for tool in tools)


def test_an_agent_learns_why_a_window_has_not_fired(runs: tuple[str, str]) -> None:
    of, (first, second) = server(runs), runs
    found = ask(of, "runs")
    assert [(one["run"], one["pipeline"], one["last_batch"]) for one in found] == [
        (first, "open", 4),
        (second, "ended", 5),
    ]
    told = " ".join(ask(of, "why", run=first, stage="counts", key="ada", window="1970-01-01T00:01:30Z"))
    assert "00:02:00" in told
    stages = ask(of, "stages", run=first)
    assert stages["sources"]["plays"]["watermark"].startswith("1970-01-01T00:01:34")
    assert stages["stages"]["counts"]["pending"] == 40
    assert len(ask(of, "batches", run=first, last=2)) == 2
    assert "source plays: 100 elements in 5 batches" in ask(of, "tune", run=first, bounds=["1s"])
    assert any("behind" in line or "batch" in line for line in ask(of, "status", run=first))


def test_what_is_wrong_is_said(runs: tuple[str, str]) -> None:
    of, (first, _) = server(runs), runs
    assert "give run=: one of" in ask(of, "why")
    assert "there is no run '/etc'" in ask(of, "why", run="/etc")
    assert "did you mean 'counts'?" in ask(of, "why", run=first, stage="count")


def test_the_command_serves_over_standard_input_and_output(runs: tuple[str, str], tmp_path: Path) -> None:
    first, _ = runs
    command = StdioServerParameters(command=sys.executable, args=["-m", "beamlike", "mcp", first])
    assert ask(command, "runs")[0]["pipeline"] == "open"
