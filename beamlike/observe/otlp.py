"""Providers of OpenTelemetry's SDK, configured by its environment variables `OTEL_*` as in the specification."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points
from typing import Any, Final

import attrs
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    MetricExportResult,
    MetricReader,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult

from beamlike.errors import PlanError, nearest
from beamlike.runtime.run.telemetry import Report

_PROTOCOLS: Final = {"grpc": "otlp_proto_grpc", "http/protobuf": "otlp_proto_http"}
_HTTP: Final = "http/protobuf"


def exporter_classes(signal: str) -> list[type]:
    """Returns the exporter classes for `signal` ("traces" or "metrics") that the environment names; by default OTLP
    over HTTP.

    Raises `PlanError` if a name or protocol is unknown or not installed.
    """
    given = os.environ.get(f"OTEL_{signal.upper()}_EXPORTER") or "otlp"
    names = [name.strip() for name in given.split(",") if name.strip() not in ("", "none")]
    return [_class_of(signal, name) for name in names]


def _class_of(signal: str, name: str) -> type:
    group = f"opentelemetry_{signal}_exporter"
    entry = _of_protocol(signal) if name == "otlp" else name
    for found in entry_points(group=group, name=entry):
        made: type = found.load()
        return made
    known = sorted({one.name for one in entry_points(group=group)} | {"otlp", "none"})
    if entry == _PROTOCOLS["grpc"]:
        raise PlanError("OTLP over gRPC needs: pip install opentelemetry-exporter-otlp-proto-grpc")
    raise PlanError(
        f"OTEL_{signal.upper()}_EXPORTER: no exporter {name!r} is installed; there are {', '.join(known)}"
        f"{nearest(name, known)}"
    )


def _of_protocol(signal: str) -> str:
    named = [f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"]
    variable = next((name for name in named if os.environ.get(name)), named[1])
    protocol = os.environ.get(variable) or _HTTP
    if protocol not in _PROTOCOLS:
        raise PlanError(
            f"{variable} must be {' or '.join(map(repr, _PROTOCOLS))}, not {protocol!r}{nearest(protocol, _PROTOCOLS)}"
        )
    return _PROTOCOLS[protocol]


def resource(service: str) -> Resource:
    """Returns the resource of a process. Its service name is `service`, unless the environment sets another one."""
    named = os.environ.get("OTEL_SERVICE_NAME") or "service.name=" in os.environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
    return Resource.create() if named else Resource.create({"service.name": service})


@attrs.define(eq=False)
class Providers:
    """The OpenTelemetry providers and exporters of one run.

    `service` is the default name of the service. `report` receives the reason of each failed export.
    """

    service: str
    report: Report
    _exporters: list[Any] = attrs.field(factory=list, init=False)
    _made: list[TracerProvider | MeterProvider] = attrs.field(factory=list, init=False)

    def tracers(self) -> TracerProvider:
        """Creates a provider of tracers, with the exporters of traces that the environment names."""
        provider = TracerProvider(resource=resource(self.service), shutdown_on_exit=False)
        for kind in exporter_classes("traces"):
            provider.add_span_processor(BatchSpanProcessor(self._exporter(kind, SpanExportResult.FAILURE)))
        self._made.append(provider)
        return provider

    def meters(self) -> MeterProvider:
        """Creates a provider of meters, with the exporters of metrics that the environment names."""
        readers: list[MetricReader] = []
        for kind in exporter_classes("metrics"):
            # The Prometheus exporter is such a reader, since it is scraped.
            if issubclass(kind, MetricReader):
                readers.append(kind())
            else:
                exporter = self._exporter(kind, MetricExportResult.FAILURE)
                readers.append(PeriodicExportingMetricReader(exporter))
        provider = MeterProvider(readers, resource=resource(self.service), shutdown_on_exit=False)
        self._made.append(provider)
        return provider

    def shut_down(self, seconds: float) -> None:
        """Exports all remaining data, and shuts all providers down. After this number of seconds, exporters give up."""
        threads = [
            threading.Thread(target=_unlogged_shutdown, args=(one,), daemon=True) for one in self._made
        ]
        for thread in threads:
            thread.start()
        until = time.monotonic() + seconds
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
        for exporter in self._exporters if any(thread.is_alive() for thread in threads) else ():
            _unlogged_shutdown(exporter)  # The shutdown interrupts the retries of the exporter.
        for thread in threads:
            thread.join()

    def _exporter(self, kind: type, failure: object) -> Any:
        self._exporters.append(_reporting(kind, failure, self.report)())
        return self._exporters[-1]


def _unlogged_shutdown(one: Any) -> None:
    # An exporter may be shut down twice, and then logs a warning.
    with _unlogged():
        one.shutdown()


def _reporting(kind: type, failure: object, report: Report) -> type:
    """Returns an exporter class that passes the reason of a failed export to `report`. The SDK would log each
    failure.
    """

    def export(self: Any, *args: Any, **kwargs: Any) -> Any:
        with _unlogged() as messages:
            try:
                result = kind.export(self, *args, **kwargs)  # type: ignore[attr-defined]
            except Exception as error:
                messages.append(f"{type(error).__name__}: {error}")
                result = failure
        if result is failure:
            report(messages[0] if messages else "the export failed")
        return result

    return type(f"Reporting{kind.__name__}", (kind,), {"export": export})


_LOCAL = threading.local()


class _Unlogged(logging.Filter):
    """A logging filter that collects the messages of exporters within `_unlogged`, instead of logging them."""

    def filter(self, record: logging.LogRecord) -> bool:
        messages: list[str] | None = getattr(_LOCAL, "messages", None)
        if messages is not None:
            messages.append(record.getMessage())
        return messages is None


_FILTER = _Unlogged()


@contextmanager
def _unlogged() -> Iterator[list[str]]:
    """Returns the messages that exporters log in this thread within the `with` block. They are not logged."""
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if name.startswith(("opentelemetry.", "urllib3.", "grpc.")) and isinstance(logger, logging.Logger):
            logger.addFilter(_FILTER)
    _LOCAL.messages = messages = list[str]()
    try:
        yield messages
    finally:
        _LOCAL.messages = None
