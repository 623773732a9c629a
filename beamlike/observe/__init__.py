"""Views of a run's records: a history, sentences, tables, pages, charts and metrics.

May import `runtime` and all below it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from beamlike.observe.waiting.explain import why
from beamlike.records.history import History
from beamlike.records.model import BatchRecord
from beamlike.runtime.display.tables import watermarks_table
from windowing.time import format_duration, format_time

if TYPE_CHECKING:
    from beamlike.observe.charts.charts import Charts, side_by_side
    from beamlike.observe.metrics import PrometheusMetrics
    from beamlike.observe.report import write_report

__all__ = [
    "BatchRecord",
    "Charts",
    "History",
    "PrometheusMetrics",
    "format_duration",
    "format_time",
    "side_by_side",
    "watermarks_table",
    "why",
    "write_report",
]

# These need packages of their own, matplotlib and the Prometheus client, which are extras.
_EXTRAS = {
    "Charts": "beamlike.observe.charts.charts",
    "PrometheusMetrics": "beamlike.observe.metrics",
    "side_by_side": "beamlike.observe.charts.charts",
    "write_report": "beamlike.observe.report",
}


def __getattr__(name: str) -> Any:
    if name in _EXTRAS:
        try:
            return getattr(import_module(_EXTRAS[name]), name)
        except ModuleNotFoundError as error:
            if not str(error.name).startswith("matplotlib"):
                raise
            needs = "reports and charts need matplotlib: pip install 'beamlike[report]'"
            raise ModuleNotFoundError(needs, name=error.name) from None
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
