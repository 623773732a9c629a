"""Local collectors of telemetry: receivers of OTLP over HTTP and gRPC, and of OpenLineage events."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import attrs
from jsonschema import Draft202012Validator, FormatChecker
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as traces
from referencing import Registry, Resource

from tests.support.places import ROOT

SPECIFICATION = ROOT / "tests" / "data" / "openlineage"


@attrs.define
class Received:
    """The spans, metrics and service names that an OTLP receiver has received."""

    spans: list[Any] = attrs.field(factory=list)
    metrics: dict[str, Any] = attrs.field(factory=dict)
    services: set[str] = attrs.field(factory=set)
    headers: list[dict[str, str]] = attrs.field(factory=list)

    def take_spans(self, request: Any) -> None:
        for of_resource in request.resource_spans:
            self._service(of_resource.resource)
            for scope in of_resource.scope_spans:
                self.spans += scope.spans

    def take_metrics(self, request: Any) -> None:
        for of_resource in request.resource_metrics:
            self._service(of_resource.resource)
            for scope in of_resource.scope_metrics:
                self.metrics |= {metric.name: metric for metric in scope.metrics}

    def _service(self, resource: Any) -> None:
        self.services.add(attributes(resource)["service.name"])

    def value(self, name: str, **labels: str) -> float:
        """Returns the value of a metric with these labels and any `pipeline`."""
        metric = self.metrics[f"beamlike_{name}"]
        points = metric.sum.data_points if metric.HasField("sum") else metric.gauge.data_points
        (found,) = [point for point in points if attributes(point).items() >= labels.items()]
        return found.as_double if found.HasField("as_double") else found.as_int

    def named(self, name: str) -> list[Any]:
        return [span for span in self.spans if span.name == name]


def attributes(one: Any) -> dict[str, Any]:
    """Returns the attributes of a span, a point or a resource."""
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in one.attributes}


@contextmanager
def otlp_http(status: int = 200) -> Iterator[tuple[str, Received]]:
    """Runs an OTLP receiver that answers with `status`; yields its address and its received data."""
    received = Received()

    def take(path: str, headers: dict[str, str], body: bytes) -> bytes:
        received.headers.append(headers)
        if path == "/v1/traces":
            received.take_spans(traces.ExportTraceServiceRequest.FromString(body))
            return traces.ExportTraceServiceResponse().SerializeToString()
        received.take_metrics(metrics.ExportMetricsServiceRequest.FromString(body))
        return metrics.ExportMetricsServiceResponse().SerializeToString()

    with served(take, status) as address:
        yield address, received


@contextmanager
def otlp_grpc() -> Iterator[tuple[str, Received]]:
    """Runs an OTLP receiver over gRPC; yields its address and its received data."""
    import grpc
    from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as metrics_service
    from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as traces_service

    received = Received()

    class Traces(traces_service.TraceServiceServicer):
        def Export(self, request: Any, context: Any) -> Any:
            received.take_spans(request)
            return traces.ExportTraceServiceResponse()

    class Metrics(metrics_service.MetricsServiceServicer):
        def Export(self, request: Any, context: Any) -> Any:
            received.take_metrics(request)
            return metrics.ExportMetricsServiceResponse()

    with ThreadPoolExecutor(2) as threads:
        server = grpc.server(threads)
        traces_service.add_TraceServiceServicer_to_server(Traces(), server)
        metrics_service.add_MetricsServiceServicer_to_server(Metrics(), server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield f"http://127.0.0.1:{port}", received
        finally:
            server.stop(None).wait()


@contextmanager
def lineage_collector(status: int = 200) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Runs a receiver that validates OpenLineage events; yields its address and the events."""
    events: list[dict[str, Any]] = []

    def take(path: str, headers: dict[str, str], body: bytes) -> bytes:
        events.append(json.loads(body))
        return b"{}"

    with served(take, status) as address:
        yield address, events
    for event in events:
        require_valid(event)


@contextmanager
def served(take: Callable[[str, dict[str, str], bytes], bytes], status: int) -> Iterator[str]:
    """Runs an HTTP server on this machine and yields its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            answer = take(self.path, dict(self.headers), body)
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def require_valid(event: dict[str, Any]) -> None:
    """Compares an event and its facets with the specification, in the version stored here.

    Clients may use a slightly older or newer version; the versions are compatible.
    """
    files = {file.name: json.loads(file.read_text()) for file in SPECIFICATION.glob("*.json")}
    registry = Registry().with_resources(
        [(schema["$id"], Resource.from_contents(schema)) for schema in files.values()]
    )

    def check(one: Any, schema: dict[str, Any]) -> None:
        Draft202012Validator(schema, registry=registry, format_checker=FormatChecker()).validate(one)

    check(event, files["OpenLineage.json"])
    facets = [event["run"]["facets"], event["job"]["facets"]]
    for dataset in (*event["inputs"], *event["outputs"]):
        facets += [dataset.get(kind) or {} for kind in ("facets", "inputFacets", "outputFacets")]
    for each in facets:
        for facet in each.values():
            address, _, name = facet["_schemaURL"].partition("#")
            schema = files[address.rpartition("/")[2]]
            check(facet, {"$ref": f"{schema['$id']}#{name}"})
