"""Measures all figures of the page of benchmarks, of one commit, and writes the page.

    make bench                                  # what is not measured of this commit
    make bench ARGS='--only latency,cores'      # some of it

A stopped run continues: figures of this commit are left out. Others stay, with their commit and date, until they are
measured anew.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Final

import attrs
import click
from rich.console import Console

from benchmarks import page
from benchmarks.machine import commit


@attrs.frozen
class Part:
    """A benchmark: its module with arguments, about how many minutes it takes on two cores, and whether it resumes.

    One that does not resume is left out as a whole if all its figures are of this commit. `alone`: with one thread of
    polars.
    """

    module: str
    minutes: int
    arguments: tuple[str, ...] = ()
    resumes: bool = False
    alone: bool = False


PARTS: Final[Mapping[str, Part]] = {
    "firing": Part("firing", 1),
    "combine": Part("combine", 1),
    "sides": Part("sides", 2, alone=True),
    "aggregates": Part("aggregates", 2),
    "changes": Part("changes", 5, alone=True),
    "checkpoint": Part("checkpoint", 2),
    "cores": Part("cores", 4),
    "joins": Part("joins", 5, resumes=True, alone=True),
    "flagship": Part("flagship", 8, ("--repeats", "3"), resumes=True),
    "throughput": Part("throughput", 15, resumes=True),
    "latency": Part("latency", 24, resumes=True),
    "timeline": Part("latency.timeline", 2),
    "scale": Part("scale", 15, resumes=True, alone=True),
    "process": Part("process", 25, resumes=True),
    "state": Part("state", 35, resumes=True),
    "state_stores": Part("state_stores", 90, resumes=True),
    "nexmark": Part("nexmark.measure", 85, ("--only", "local,spark,flink,native"), resumes=True),
}
"""The parts in the order in which they run: the short ones first."""


def known(name: str, now: str | None) -> bool:
    """True if a part that does not resume has all its figures of this commit."""
    [section] = [each for each in page.SECTIONS if each.name == name]
    return (
        not PARTS[name].resumes
        and bool(section.figures)
        and len(section.measured_of(now)) == len(section.figures)
    )


def _some(context: click.Context, option: click.Parameter, value: str) -> tuple[str, ...]:
    for name in value.split(","):
        if name not in PARTS:
            raise click.BadParameter(f"{name!r}, expected some of {','.join(PARTS)}", context, option)
    return tuple(name for name in PARTS if name in value.split(","))


@click.command(context_settings={"show_default": True})
@click.option("--only", "names", default=",".join(PARTS), callback=_some, help="Some of the parts.")
def main(names: tuple[str, ...]) -> None:
    """Measure what is not measured of this commit, and write the page."""
    console, now, failed = Console(), commit(), list[str]()
    if now is None or now.endswith("+"):
        console.print("The code differs from its last commit, or there is no git: everything is measured.")
    for name in names:
        part = PARTS[name]
        if known(name, now):
            console.print(f"{name}: measured of {now[:7] if now else now} already", highlight=False)
            continue
        console.print(f"{name}: some {part.minutes} minutes", highlight=False)
        resume = ["--resume"] if part.resumes else []
        command = [sys.executable, "-m", f"benchmarks.{part.module}", *part.arguments, *resume]
        env = {**os.environ, **({"POLARS_MAX_THREADS": "1"} if part.alone else {})}
        if subprocess.run(command, env=env, check=False).returncode:
            failed.append(name)
        page.show()
    if failed:
        raise click.ClickException(f"failed: {', '.join(failed)}; the other figures are in the page")


if __name__ == "__main__":
    main()
