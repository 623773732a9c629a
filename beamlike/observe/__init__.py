"""Views of a run's records: a history, explanations, tables, reports, charts and metrics.

May import `runtime` and all below it.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from beamlike.errors import missing, missing_package
from beamlike.observe.completeness.alerts import alert_rules, write_alerts
from beamlike.observe.completeness.calibration import Calibration, completeness
from beamlike.observe.tuning.trigger_tuning import TriggerTuning, tune_triggers
from beamlike.observe.tuning.tuning import Tuning, tune
from beamlike.observe.waiting.explain import why
from beamlike.records.history import History
from beamlike.records.model import BatchRecord
from beamlike.runtime.display.tables import watermarks_table
from beamlike.system.arguments import answered_name, answering_all
from windowing.time import format_duration, format_time

if TYPE_CHECKING:
    from beamlike.observe.charts.charts import Charts, side_by_side
    from beamlike.observe.live.server import serve, serving
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
    "serve",
    "serving",
    "side_by_side",
    "tune",
    "tune_triggers",
    "watermarks_table",
    "why",
    "write_alerts",
    "write_report",
]

# These need further packages, which are optional: matplotlib, a web server, and clients that send telemetry.
_EXTRAS = {
    "Charts": "beamlike.observe.charts.charts",
    "OpenLineage": "beamlike.observe.open_lineage",
    "OpenTelemetry": "beamlike.observe.open_telemetry",
    "PrometheusMetrics": "beamlike.observe.metrics",
    "serve": "beamlike.observe.live.server",
    "serving": "beamlike.observe.live.server",
    "side_by_side": "beamlike.observe.charts.charts",
    "write_report": "beamlike.observe.report",
}

_OF_SERVER = ("anyio", "jinja2", "markupsafe", "sse_starlette", "starlette", "uvicorn")

answering_all(globals(), __all__)

if not TYPE_CHECKING:  # for a type checker, a name that is not declared stays an error

    def __getattr__(name: str) -> Any:
        if name in _EXTRAS:
            try:
                return answered_name(getattr(import_module(_EXTRAS[name]), name))
            except ModuleNotFoundError as error:
                package = str(error.name).partition(".")[0]
                if package in _OF_SERVER:
                    raise missing_package(f"the live page needs {package}", "ui", error) from None
                if package != "matplotlib":
                    raise
                raise missing_package("reports and charts need matplotlib", "report", error) from None
        raise missing(sys.modules[__name__], f"module {__name__!r}", name, "", __all__)


def __dir__() -> list[str]:
    """Returns the public names."""
    return sorted(__all__)
