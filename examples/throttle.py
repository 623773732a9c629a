"""A rate limit per key in processing time: twenty calls of a client in ten seconds; other calls wait for their turn.

    python -m examples.throttle [--runner local|spark]

Time is that of a test stream, so every run is the same. The calls are compared with a plain simulation, call by call.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import click
import numpy as np
import polars as pl
from rich.console import Console

import beamlike as bl
from examples.drawing import figures, save

DAY = "2026-01-01T12:00:00Z"
LIMIT = 20  # calls of a client
PERIOD = 10  # seconds

_SCHEMA = {"client": str, "call": int, "waited": float}

Calls = dict[int, list[tuple[str, int]]]
"""The calls of each second: client and number."""
Passed = list[tuple[int, str, int, float]]
"""Second, client and call, and for how many seconds it has waited."""


@attrs.frozen
class Clients:
    """The number of clients, each of which calls occasionally and, once in a minute, very often."""

    clients: int = 4
    seconds: int = 90
    seed: int = 7


def calls(asked: Clients) -> Calls:
    """Returns the calls with their times."""
    rng = np.random.default_rng(asked.seed)
    numbers = iter(range(1_000_000))
    found: Calls = {}
    for second in range(asked.seconds):
        rates = [15 if (second + 13 * client) % 60 < 4 else 0.5 for client in range(asked.clients)]
        often = rng.poisson(rates).tolist()
        found[second] = [
            (f"client {client + 1}", next(numbers)) for client, n in enumerate(often) for _ in range(n)
        ]
    return found


class Throttle(bl.Process):
    """Emits a limited number of a client's calls per period, which begins with a call; others wait, in order."""

    used = bl.Value(int, default=0)
    waiting = bl.List({"call": int, "came": float})
    period = bl.ProcessingTimer()

    def element(self, row: dict[str, Any]) -> Any:
        if self.period.pending() is None:
            self.period.after(f"{PERIOD}s")
        now = self.processing_time.timestamp()
        if self.used < LIMIT:
            self.used += 1
            yield {"client": self.key.client, "call": row["call"], "waited": 0.0}
        else:
            self.waiting.append({"call": row["call"], "came": now})

    def on_period(self) -> Any:
        # At the end of input a timer fires for the last time, so nothing must be left.
        turn = len(self.waiting) if self.at_end else LIMIT
        passed, self.waiting = self.waiting[:turn], self.waiting[turn:]
        self.used = len(passed)
        if passed:
            self.period.after(f"{PERIOD}s")
        now = self.processing_time.timestamp()
        for each in passed:
            yield {"client": self.key.client, "call": each["call"], "waited": now - each["came"]}


def stream(coming: Calls) -> bl.TestStream:
    """Returns the calls, a second of processing time apart, and then enough time for all of them to pass."""
    made = bl.TestStream({"client": str, "call": int, "at": str}).advance_watermark_to(DAY)
    for second in range(2 * len(coming)):
        rows = [{"client": client, "call": call, "at": DAY} for client, call in coming.get(second, [])]
        made = made.add_elements(rows) if rows else made
        made = made.advance_processing_time("1s")
    return made.advance_watermark_to_infinity()


def run(coming: Calls, runner: Any = None) -> Passed:
    """Returns the calls that pass, in order."""
    p, found = bl.Pipeline("throttle"), dict[int, list[tuple[str, int, float]]]()
    came = p.read("calls", stream(coming), timestamp="at")
    passed = came.group_by("client", name="throttle").process(Throttle(), _SCHEMA, order="arrival")
    passed.write("passed", bl.Callback(partial(_keep, found)))
    seconds = {batch.batch: batch.processing_time // 1_000_000 for batch in p.run(runner).batches}
    return sorted((seconds[batch], *row) for batch, rows in found.items() for row in rows)


def _keep(found: dict[int, list[tuple[str, int, float]]], rows: pl.DataFrame, batch: int) -> None:
    found[batch] = rows.select(*_SCHEMA).rows()


def expected(coming: Calls) -> Passed:
    """Simulates the throttle: each client has a queue, from which a limited number of calls pass in a period."""
    passed, queues = [], defaultdict[str, list[tuple[int, int]]](list)
    begins, used = dict[str, int](), defaultdict[str, int](int)
    for second in range(2 * len(coming)):
        for client in [client for client, begin in begins.items() if begin + PERIOD == second]:
            turn, queues[client] = queues[client][:LIMIT], queues[client][LIMIT:]
            passed += [(second, client, call, float(second - came)) for came, call in turn]
            used[client] = len(turn)
            del begins[client]
            if turn:
                begins[client] = second
        for client, call in coming.get(second, []):
            begins.setdefault(client, second)
            if used[client] < LIMIT:
                used[client] += 1
                passed.append((second, client, call, 0.0))
            else:
                queues[client].append((second, call))
    return sorted(passed)


def picture(coming: Calls, passed: Passed, path: Path) -> None:
    """Draws the calls of each client by second: when they arrived, and when they passed."""
    came = [(second, client) for second, rows in coming.items() for client, _ in rows]
    clients = sorted({client for _, client in came})
    figure, panels = figures(len(clients), 1, (9, 1.2 * len(clients) + 0.6), sharex=True, sharey=True)
    end = max(second for second, *_ in passed) + 1
    for panel, client in zip(panels.flat, clients, strict=True):
        for rows, color, label in ((came, "#BBBBBB", "came"), (passed, "#0072B2", "passed")):
            seconds = [row[0] for row in rows if row[1] == client]
            panel.hist(seconds, bins=range(end + 1), color=color, label=label, histtype="stepfilled")
        panel.set_title(client, fontsize="small", loc="left")
    panels.flat[0].legend(fontsize="small")
    figure.supxlabel("seconds of processing time", fontsize="small")
    save(figure, path)


@click.command(context_settings={"show_default": True})
@click.option("--runner", "on", default="local", type=click.Choice(["local", "spark"]))
@click.option("--clients", default=4, type=click.IntRange(1))
@click.option("--seed", default=7, type=click.IntRange(0), help="Seed of the generated calls.")
@click.option("--work", default=Path("build/demo"), type=click.Path(file_okay=False, path_type=Path))
def main(on: str, clients: int, seed: int, work: Path) -> None:
    """Throttle calls and draw them; exit code 1 if they do not pass as expected."""
    console = Console()
    coming = calls(Clients(clients, seed=seed))
    passed = run(coming, bl.SparkRunner() if on == "spark" else bl.LocalRunner())
    right = passed == expected(coming)
    waited = [seconds for *_, seconds in passed if seconds]
    console.print(
        f"{len(passed):,} calls of {clients} clients: {len(waited):,} have waited, up to {max(waited):.0f} s",
        highlight=False,
    )
    console.print("[green]OK[/green] as simulated" if right else "[red]WRONG[/red]: simulated otherwise")
    work.mkdir(parents=True, exist_ok=True)
    picture(coming, passed, work / "throttle.svg")
    console.print(f"To look at: {work / 'throttle.svg'}", highlight=False, soft_wrap=True)
    sys.exit(not right)


if __name__ == "__main__":
    main()
