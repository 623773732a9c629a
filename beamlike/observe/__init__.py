"""Views of a run's records: a history, explanations, tables, reports, charts and metrics.

May import `runtime` and all below it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from beamlike.errors import missing_package
from beamlike.observe.completeness.alerts import alert_rules, write_alerts
from beamlike.observe.completeness.calibration import Calibration, completeness
from beamlike.observe.tuning.trigger_tuning import TriggerTuning, tune_triggers
from beamlike.observe.tuning.tuning import Tuning, tune
from beamlike.observe.waiting.explain import why
from beamlike.records.history import History
from beamlike.records.model import BatchRecord
from beamlike.runtime.display.tables import watermarks_table
from windowing.time import format_duration, format_time

if TYPE_CHECKING:
    from beamlike.observe.charts.charts import Charts, side_by_side
    from beamlike.observe.metrics import PrometheusMetrics
    from beamlike.observe.open_lineage import OpenLineage
    from beamlike.observe.open_telemetry import OpenTelemetry
    from beamlike.observe.report import write_report

__all__ = [
    "BatchRecord",
    "Calibration",
    "Charts",
    "History",
    "OpenLineage",
    "OpenTelemetry",
    "PrometheusMetrics",
    "TriggerTuning",
    "Tuning",
    "alert_rules",
    "completeness",
    "format_duration",
    "format_time",
    "side_by_side",
    "tune",
    "tune_triggers",
    "watermarks_table",
    "why",
    "write_alerts",
    "write_report",
]

# These need further packages, which are optional: matplotlib, and the clients of the systems that receive telemetry.
_EXTRAS = {
    "Charts": "beamlike.observe.charts.charts",
    "OpenLineage": "beamlike.observe.open_lineage",
    "OpenTelemetry": "beamlike.observe.open_telemetry",
    "PrometheusMetrics": "beamlike.observe.metrics",
    "side_by_side": "beamlike.observe.charts.charts",
    "write_report": "beamlike.observe.report",
}


if not TYPE_CHECKING:  # for a type checker, a name that is not declared stays an error

    def __getattr__(name: str) -> Any:
        if name in _EXTRAS:
            try:
                return getattr(import_module(_EXTRAS[name]), name)
            except ModuleNotFoundError as error:
                if not str(error.name).startswith("matplotlib"):
                    raise
                raise missing_package("reports and charts need matplotlib", "report", error) from None
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Returns the public names."""
    return sorted(__all__)
