"""`beamlike mcp`: a server of the Model Context Protocol, through which an agent reads the records of runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click

from beamlike.cli.plainly import plainly
from beamlike.errors import PlanError, ViewError, listed, missing_package, nearest
from beamlike.version import version

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

    from beamlike.records.history import History

_ABOUT: Final = (
    "The records of runs of beamlike, an engine for event-time pipelines. Begin with `runs`. `why` says what a window "
    "waits for; `status` whether a run keeps up; `stages` where each watermark is; `tune` what other bounds would lose."
)
_MOST: Final = 50
"""The greatest number of batches that one call returns."""


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
def mcp(runs: tuple[str, ...]) -> None:
    """Serve the records of runs to agents, by the Model Context Protocol over standard input and output.

    RUN is a file of records, a folder with one, or a checkpoint. Nothing is changed, and the runs may go on meanwhile.
    """
    plainly(lambda: server(runs)).run("stdio")


def server(runs: tuple[str, ...]) -> MCPServer[Any]:
    """Returns a server of these runs. Raises `ModuleNotFoundError` if its package is not installed."""
    try:
        from mcp.server.mcpserver import MCPServer
        from mcp_types import ToolAnnotations
    except ModuleNotFoundError as error:
        raise missing_package("beamlike mcp needs the SDK of the protocol", "mcp", error) from None
    made: MCPServer[Any] = MCPServer("beamlike", instructions=_ABOUT, version=version())
    for tool in _Tools(runs).all():
        made.add_tool(_saying(tool), annotations=ToolAnnotations(read_only_hint=True))
    return made


class _Tools:
    """The tools. Each reads the records anew, so that it has the newest batches."""

    def __init__(self, given: tuple[str, ...]) -> None:
        self.given = given

    def all(self) -> list[Callable[..., Any]]:
        """Returns the tools. Their names, parameters and docstrings are what an agent sees."""
        return [self.runs, self.status, self.why, self.stages, self.batches, self.tune]

    def _history(self, run: str | None) -> History:
        from beamlike.records.history import History

        if run is None and len(self.given) > 1:
            raise PlanError(f"give run=: one of {listed(self.given)}")
        name = self.given[0] if run is None else run
        if name not in self.given:
            raise PlanError(
                f"there is no run {name!r}; there are {listed(self.given)}{nearest(name, self.given)}"
            )
        return History.open(name)

    def runs(self) -> list[dict[str, Any]]:
        """Lists the runs that can be asked about: the name, the pipeline, the state, and the number of batches."""
        from beamlike.observe.waiting.explain import run_state

        found = []
        for name in self.given:
            history = self._history(name)
            last = history.batches[-1].batch if history.batches else None
            found.append(
                {
                    "run": name,
                    "pipeline": history.plan.pipeline,
                    "state": run_state(history),
                    "last_batch": last,
                }
            )
        return found

    def status(self, run: str | None = None) -> list[str]:
        """Says whether a run keeps up: its state, how far each source and stage is behind, and its promises."""
        from beamlike.observe.status import Status

        found = Status.of(self._history(run))
        return [*found.lines(), *(f"Trouble: {trouble}" for trouble in found.troubles())]

    def why(
        self,
        run: str | None = None,
        stage: str | None = None,
        key: str | None = None,
        window: str | None = None,
    ) -> list[str]:
        """Explains why a window has not fired: which watermark it waits for, what holds that, and since when.

        A window is START/END, or a time in it, such as 2026-01-31T12:05Z. Without a stage, all stages are explained.
        """
        from beamlike.observe.waiting.explain import why

        return why(self._history(run), stage=stage, key=key, window=window)

    def stages(self, run: str | None = None) -> dict[str, Any]:
        """Describes each source and stage after the last batch: its watermark, and its rows that wait, are stored or
        were dropped.
        """
        history = self._history(run)
        if not history.batches:
            return {}
        last = history.batches[-1]
        sources = {name: {"watermark": _time(one.watermark)} for name, one in last.sources.items()}
        stages = {
            name: {
                "input_watermark": _time(one.input),
                "output_watermark": _time(one.output),
                "pending": one.pending,
                "stored": one.live,
                "dropped": dict(one.dropped),
            }
            for name, one in last.stages.items()
        }
        return {"batch": last.batch, "sources": sources, "stages": stages}

    def batches(self, run: str | None = None, last: int = 5) -> list[dict[str, Any]]:
        """Returns the records of the last batches, at most 50: rows, watermarks, panes, dropped rows, and times."""
        from stages.facts import to_facts

        return [to_facts(batch) for batch in self._history(run).batches[-min(max(last, 1), _MOST) :]]

    def tune(self, run: str | None = None, source: str | None = None, bounds: list[str] | None = None) -> str:
        """Predicts for other bounds of the watermark how many rows would be late or dropped, and the delay of panes."""
        from beamlike.observe.tuning.tuning import tune

        return str(tune(self._history(run), source=source, bounds=bounds or ()))


def _time(microseconds: int) -> str:
    from windowing.time import format_time

    return format_time(microseconds)


def _saying(tool: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the tool, whose errors of this package become answers that an agent can read."""
    from functools import wraps

    from mcp.server.mcpserver.exceptions import ToolError

    @wraps(tool)
    def call(*given: Any, **named: Any) -> Any:
        try:
            return tool(*given, **named)
        except (PlanError, ViewError, OSError, ValueError) as error:
            raise ToolError(str(error)) from error

    return call
