"""A model of the CPU time of a batch on Spark with many shards and many splits, and its constants.

    python -m benchmarks.scale --resume                        # what is not measured of this commit
    python -m benchmarks.scale --only send,reports,splits      # without Spark

Three measurements: the step of one shard in process, with up to 2,000 shards around it and up to 1,000 splits
(`scale_steps`); the price of an envelope in Spark's shuffle; and whole runs on Spark with up to 64 shards. What other
numbers of shards and splits cost is reckoned from these.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import click
import numpy as np
from rich.console import Console

from beamlike.spark.session.java import find_java
from benchmarks import readme
from benchmarks.kept import Figures
from benchmarks.machine import machine
from benchmarks.measure import measure
from benchmarks.section import Section, resume
from examples import generate
from examples.drawing import figures as drawn
from examples.drawing import save

DOCS: Final = Path(__file__).parents[1] / "docs"
PICTURE: Final = DOCS / "pictures" / "scale.svg"
SHARDS: Final = (2, 8, 32, 64, 256, 1_000, 2_000)
SPLITS: Final = (1, 10, 100, 1_000)
ON_SPARK: Final = (2, 8, 32, 64)
_BATCHES: Final = (2, 5)
_FEW, _MANY = 20_000, 2_000_000
"""Envelopes through Spark's shuffle."""


def step(kind: str, size: int) -> float:
    """Returns milliseconds of CPU of a shard's step in process."""
    from benchmarks.scale_steps import Shards, first_level, plan, second_level

    if kind == "send":
        return 1e3 * first_level(Shards(plan(), size, 4, 4), 9)
    if kind == "reports":
        return 1e3 * second_level(Shards(plan(), size, 4, 4), 9)
    return 1e3 * first_level(Shards(plan(), 2, size, min(size, 8)), 9)


def on_spark(shards: int) -> float:
    """Returns CPU milliseconds of a batch of all processes: those of five batches less those of two."""
    java, used = find_java(), list[float]()
    env = dict(os.environ) | ({} if java is None else {"JAVA_HOME": str(java.home)})
    with tempfile.TemporaryDirectory() as folder:
        for batches in _BATCHES:
            data, log = Path(folder, f"plays-{batches}"), Path(folder, "log")
            generate.write(data, generate.Plays(1_000 * batches, files=batches))
            out = Path(folder, f"out-{batches}")
            command = [sys.executable, "-m", "benchmarks.run_job", "--shards", f"{shards}", "spark"]
            with log.open("w") as file:
                usage = measure([*command, f"{data}", f"{out}"], env=env, log=file)
            if usage.code:
                raise click.ClickException(f"{shards} shards:\n{log.read_text()[-3_000:]}")
            used.append(usage.cpu)
    return 1e3 * (used[1] - used[0]) / (_BATCHES[1] - _BATCHES[0])


def envelopes(count: int) -> float:
    """Returns CPU milliseconds of a job on Spark that sends so many small envelopes through a shuffle."""
    java = find_java()
    env = dict(os.environ) | {"PYSPARK_PYTHON": sys.executable}
    env |= {} if java is None else {"JAVA_HOME": str(java.home)}
    with tempfile.NamedTemporaryFile("w+") as log:
        command = [sys.executable, "-m", "benchmarks.scale_envelopes", f"{count}"]
        usage = measure(command, env=env, log=log)
        if usage.code:
            raise click.ClickException(f"{count} envelopes:\n{Path(log.name).read_text()[-3_000:]}")
    return 1e3 * usage.cpu


PARTS: Final[Mapping[str, tuple[Any, Sequence[int]]]] = {
    "send": (lambda size: step("send", size), SHARDS),
    "reports": (lambda size: step("reports", size), SHARDS),
    "splits": (lambda size: step("splits", size), SPLITS),
    "envelopes": (envelopes, (_FEW, _MANY)),
    "spark": (on_spark, ON_SPARK),
}


@attrs.frozen
class Model:
    """CPU milliseconds: of a batch without shards (`batch`), of a shard in it for both levels (`shard`), of a report
    from a shard to another (`report`), of it in Spark's shuffle (`envelope`), and of a split on a shard (`split`).
    """

    batch: float
    shard: float
    report: float
    envelope: float
    split: float

    @classmethod
    def of(cls, figures: Sequence[Figures]) -> Model:
        """Fits the constants to the figures."""
        found = {part: {one["size"]: one["ms"] for one in figures if one["part"] == part} for part in PARTS}
        report = _slope(found["send"]) + _slope(found["reports"])
        envelope = (found["envelopes"][_MANY] - found["envelopes"][_FEW]) / (_MANY - _FEW)
        shard, batch = np.polyfit([*found["spark"]], [*found["spark"].values()], 1)
        return cls(float(batch), float(shard), report, envelope, _slope(found["splits"]))

    def reports(self, shards: int) -> float:
        """Returns the cost of all reports of a batch, from each shard of a stage to each shard of another."""
        return shards * shards * (self.report + self.envelope)

    def shares(self, shards: int, splits: int) -> dict[str, float]:
        """Returns the parts of a batch, in CPU milliseconds."""
        return {
            "batch": self.batch,
            "shards: tasks, state, records": self.shard * shards,
            "reports": self.reports(shards),
            "splits": self.split * shards * splits,
        }

    @property
    def dominate_from(self) -> int:
        """The number of shards from which reports cost more than all else."""
        return next(
            shards for shards in range(1, 10**6) if self.reports(shards) > self.batch + self.shard * shards
        )


def _slope(known: Mapping[int, float]) -> float:
    """Returns milliseconds for one more, between the least and the greatest size."""
    least, most = min(known), max(known)
    return (known[most] - known[least]) / (most - least)


def lines(figures: Sequence[Figures]) -> Iterator[str]:
    """Yields the measurements, the constants, and the reckoned costs."""
    found = {(one["part"], one["size"]): one["ms"] for one in figures}
    titles = {"send": "first level", "reports": "second level"}
    yield "Measured, one shard's step in process, CPU ms:"
    yield ""
    rows = [(title, *(_cell(found, part, size) for size in SHARDS)) for part, title in titles.items()]
    yield from readme.table(("shards", *(f"{size:,}" for size in SHARDS)), rows)
    yield ""
    row = ("first level", *(_cell(found, "splits", size) for size in SPLITS))
    yield from readme.table(("splits of the source", *(f"{size:,}" for size in SPLITS)), [row])
    yield ""
    yield "Measured, a batch on Spark with two cores, CPU ms of all processes:"
    yield ""
    row = ("two levels", *(_cell(found, "spark", size) for size in ON_SPARK))
    yield from readme.table(("shards", *(f"{size:,}" for size in ON_SPARK)), [row])
    yield ""
    yield from _reckoned(Model.of(figures))


def _cell(found: Mapping[tuple[str, int], float], part: str, size: int) -> str:
    milliseconds = found.get((part, size))
    return "" if milliseconds is None else f"{milliseconds:,.1f}"


def _reckoned(model: Model) -> Iterator[str]:
    yield "Constants:"
    yield ""
    names = {
        "a batch, without shards": model.batch,
        "a shard of both levels: two tasks, state, records": model.shard,
        "a report from a shard to another, in Python": model.report,
        "the same in Spark's shuffle": model.envelope,
        "a split, on each shard": model.split,
    }
    yield from readme.table(("constant", "CPU ms"), [(name, f"{ms:.4f}") for name, ms in names.items()])
    yield ""
    yield "Reckoned, CPU seconds of a batch, by shards and splits:"
    yield ""
    cases = [(2, 1), (16, 100), (64, 100), (200, 1_000), (500, 1_000), (1_000, 1_000), (2_000, 1_000)]
    parts = [*model.shares(1, 1)]
    rows = [
        (f"{shards:,}", f"{splits:,}", *(f"{ms / 1e3:.2f}" for ms in model.shares(shards, splits).values()))
        for shards, splits in cases
    ]
    yield from readme.table(("shards", "splits", *parts), rows)
    yield ""
    yield f"Reports cost more than everything but splits from {model.dominate_from:,} shards on."


SECTION: Final = Section("scale", ("part", "size"), lines, page=DOCS / "scale.md")


def draw(figures: Sequence[Figures], path: Path) -> None:
    """Draws the parts of a batch by the number of shards, what was measured as dots."""
    model = Model.of(figures)
    figure, ((axes,),) = drawn(1, 1, (7.5, 4.2))
    shards = np.unique(np.geomspace(1, 10_000, 60).astype(int))
    for number, part in enumerate(model.shares(1, 1)):
        seconds = [model.shares(int(each), 1_000)[part] / 1e3 for each in shards]
        axes.plot(shards, seconds, "--", color=f"C{number}", label=f"{part}, reckoned")
    measured = [(one["size"], one["ms"] / 1e3) for one in figures if one["part"] == "spark"]
    axes.plot(*zip(*measured, strict=True), "ko", label="a batch on Spark, measured")
    axes.set(xscale="log", yscale="log", xlabel="shards, with 1,000 splits", ylabel="CPU seconds of a batch")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize="small")
    save(figure, path)


@click.command()
@click.option("--only", default=",".join(PARTS), help="Some of the parts.")
@resume
def main(only: str, resume: bool) -> None:
    """Measures, keeps and draws."""
    console, about = Console(), machine(find_java())
    wanted = [(part, size) for part in only.split(",") for size in PARTS[part][1]]
    for part, size in SECTION.left(wanted, about["commit"]) if resume else wanted:
        milliseconds = PARTS[part][0](size)
        console.print(f"{part}, {size:,}: {milliseconds:,.2f} ms of CPU", highlight=False)
        SECTION.keep([{"part": part, "size": size, "ms": milliseconds}], about)
    draw(SECTION.figures, PICTURE)
    SECTION.show()
    click.echo("\n".join(SECTION.text()))


if __name__ == "__main__":
    main()
