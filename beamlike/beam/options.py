"""The pipeline options of `BeamlikeRunner`, and the choice of a run's runner and files by them."""

from __future__ import annotations

import os
from typing import Any, Final

import attrs
from apache_beam.options.pipeline_options import DebugOptions, PipelineOptions, StandardOptions

from beamlike.beam.planned.play import PlanRunner

_UNCACHED: Final = "disable_global_windowed_args_caching"
"""The experiment with which Beam's worker reads sides in the global window again in each bundle."""


class BeamlikeOptions(PipelineOptions):
    """The pipeline options of `BeamlikeRunner`."""

    @classmethod
    def _add_argparse_args(cls, parser: Any) -> None:
        parser.add_argument("--beamlike_records", help="a file for the records of the run")
        parser.add_argument("--beamlike_checkpoint", help="a folder from which a run continues")
        spark = "runs on Spark; with a value, on this master, such as local[2]"
        parser.add_argument("--beamlike_spark", nargs="?", const=True, help=spark)
        parser.add_argument("--beamlike_shards", type=int, help="on Spark: the shards of each keyed stage")
        trigger = "on Spark: available_now, or the interval between batches, such as '10 seconds'"
        parser.add_argument("--beamlike_trigger", help=trigger)


@attrs.frozen
class Chosen:
    """The runner of plans of a run, and the files of a run without one."""

    records: str | os.PathLike[str] | None
    checkpoint: str | os.PathLike[str] | None
    spark: PlanRunner | None

    def __attrs_post_init__(self) -> None:
        given = [name for name in ("records", "checkpoint") if getattr(self, name) is not None]
        if self.spark is not None and given:
            raise ValueError(
                f"BeamlikeRunner: {given[0]}= is for runs without spark=; a run on Spark has its records and its "
                "state in the checkpoint of the bl.SparkRunner"
            )

    def with_options(self, options: Any) -> Chosen:
        """Adds the pipeline options of a run to the arguments of its runner, which override them."""
        asked = options.view_as(BeamlikeOptions)
        records = asked.beamlike_records if self.records is None else self.records
        checkpoint = asked.beamlike_checkpoint if self.checkpoint is None else self.checkpoint
        if asked.beamlike_spark and self.spark is None:
            return Chosen(records, None, _spark(asked, checkpoint))
        for name in ("spark", "shards", "trigger"):
            if getattr(asked, f"beamlike_{name}"):
                needs = "needs --beamlike_spark" if self.spark is None else "is for a runner without spark="
                raise ValueError(f"BeamlikeRunner: --beamlike_{name} {needs}")
        return Chosen(records, checkpoint, self.spark)


def _spark(asked: BeamlikeOptions, checkpoint: str | os.PathLike[str] | None) -> PlanRunner:
    """Creates the runner on Spark for which options ask. A batch pipeline closes all windows at its end."""
    from beamlike.spark.runner import SparkRunner  # needs PySpark

    trigger = asked.beamlike_trigger or "available_now"
    drain = trigger == "available_now" and not asked.view_as(StandardOptions).streaming
    return SparkRunner(
        checkpoint=checkpoint,
        trigger=trigger,
        drain=drain,
        shards=asked.beamlike_shards,
        master=None if str(asked.beamlike_spark).lower() == "true" else asked.beamlike_spark,
    )


def experiments_of(options: Any, *, uncached: bool) -> list[str]:
    """Returns the experiments of a pipeline. If `uncached`, the worker reads sides again in each bundle."""
    return sorted({*(options.view_as(DebugOptions).experiments or ()), *([_UNCACHED] if uncached else [])})
