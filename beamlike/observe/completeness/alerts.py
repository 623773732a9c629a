"""Rules for Prometheus that alert when promises of a pipeline are missed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from beamlike.errors import PlanError
from beamlike.plan.model import Plan, Planned, StagePlan, plan_of
from beamlike.system.texts import label_value, quoted
from windowing.time import format_duration


def alert_rules(pipeline: Plan | Planned) -> str:
    """Returns rules for Prometheus, as YAML: an alert for each promise of the pipeline.

    An alert fires if an on-time pane has missed the promise in the last hour. The pipeline's name must be the label
    `pipeline` of its metrics.

    Args:
        pipeline: The pipeline, or its plan.

    Raises:
        PlanError: The pipeline makes no promise.

    Example, with the `plays` of `bl.Collection`:
        >>> minutes = plays.window_into(bl.FixedWindows("1m")).aggregate(n=bl.count()).named("minutes")
        >>> minutes.promise(complete=0.999, within="2m").write("out", bl.Memory())
        <Collection 'minutes': n Int64>
        >>> print(bl.observe.alert_rules(p).splitlines()[4])
              - alert: PromiseMissed
    """
    plan = plan_of(pipeline, "alert_rules")
    promising = [stage for stage in plan.stages.values() if stage.promise is not None]
    if not promising:
        raise PlanError(
            f"pipeline {plan.name!r} makes no promise, so there is nothing to alert about; call "
            'promise(complete=0.999, within="2m") on the output of a grouping'
        )
    lines = [
        "# Rules for Prometheus, of the metrics of bl.observe.PrometheusMetrics.",
        "groups:",
        f"  - name: {quoted(f'beamlike promises of {plan.name}')}",
        "    rules:",
    ]
    return "\n".join([*lines, *(line for stage in promising for line in _rule(plan.name, stage))]) + "\n"


def write_alerts(pipeline: Plan | Planned, path: str | os.PathLike[str]) -> None:
    """Writes the rules of `alert_rules` to a file, and creates its folder.

    Args:
        pipeline: The pipeline, or its plan.
        path: The file, such as "promises.yaml", for `rule_files` of Prometheus.

    Raises:
        PlanError: The pipeline makes no promise.

    Example, with the `plays` of `bl.Collection`:
        >>> minutes = plays.window_into(bl.FixedWindows("1m")).aggregate(n=bl.count())
        >>> minutes.promise(complete=0.999, within="2m").write("out", bl.Memory())
        <Collection ...>
        >>> bl.observe.write_alerts(p, "rules/promises.yaml")
    """
    rules = alert_rules(pipeline)
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(rules, encoding="utf-8")


def _rule(pipeline: str, stage: StagePlan) -> Iterator[str]:
    promise = stage.promise
    assert promise is not None
    labels = (
        f'pipeline={quoted(label_value(pipeline))}, stage={quoted(label_value(stage.name))}, outcome!="kept"'
    )
    missed = f"sum by (pipeline, stage) (increase(beamlike_stage_promised_panes_total{{{labels}}}[1h])) > 0"
    text = (
        f"{{{{ $value | humanize }}}} panes of stage {{{{ $labels.stage }}}} of {{{{ $labels.pipeline }}}} were not "
        f"complete to {promise.complete:g} within {format_duration(promise.within)}: see beamlike status."
    )
    yield "      - alert: PromiseMissed"
    yield f"        expr: {quoted(missed)}"
    yield "        annotations:"
    yield f"          summary: {quoted(text)}"
