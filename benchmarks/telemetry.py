"""The cost of telemetry for a batch: `python -m benchmarks.telemetry [--batches 1000] [--rounds 5]`.

Small batches run in process, in turns with each kind of telemetry, which a collector on this machine receives. The CPU
time of the whole process counts, with the threads of the exporters; and the time of the run, which does not wait for
them.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import beamlike as bl
from beamlike.observe import OpenLineage, OpenTelemetry, PrometheusMetrics

_COLLECTOR = """
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *arguments):
        pass

server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""

KINDS: dict[str, Callable[[], dict[str, Any]]] = {
    "nothing": dict,
    "Prometheus": lambda: {"on_batch": PrometheusMetrics("bench")},
    "OpenTelemetry": lambda: {"telemetry": OpenTelemetry()},
    "OpenLineage": lambda: {"telemetry": OpenLineage()},
}


def pipeline(batches: int) -> bl.Pipeline:
    """Declares two stages and two sinks, with a hundred rows in each batch."""
    p = bl.Pipeline("bench")
    rows = [{"user": n % 7, "at": n // 10} for n in range(100 * batches)]
    plays = p.read(
        "plays",
        bl.Rows(rows, rows_per_batch=100),
        timestamp="at",
        timestamp_unit="s",
        watermark=bl.MonotonousTimestamps(),
    )
    counted = plays.window_into(bl.FixedWindows("1m")).group_by("user").aggregate(n=bl.count())
    counted.write("users", bl.Memory())
    counted.window_into(bl.FixedWindows("5m")).aggregate(n=bl.sum("n")).write("all", bl.Memory())
    return p


def measured(batches: int, options: dict[str, Any]) -> tuple[float, float]:
    """Returns the CPU time and the time of a run, in milliseconds a batch."""
    p = pipeline(batches)
    cpu, wall = time.process_time(), time.perf_counter()
    run = p.run(bl.LocalRunner(**options))
    count = len(run.batches)
    return (time.process_time() - cpu) * 1000 / count, (time.perf_counter() - wall) * 1000 / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    collector = subprocess.Popen([sys.executable, "-c", _COLLECTOR], stdout=subprocess.PIPE, text=True)
    assert collector.stdout is not None
    address = f"http://127.0.0.1:{int(collector.stdout.readline())}"
    os.environ |= {"OTEL_EXPORTER_OTLP_ENDPOINT": address, "OPENLINEAGE_URL": address}
    try:
        measured(100, {})  # imports, and what is compiled once
        rounds = [
            {kind: measured(given.batches, options()) for kind, options in KINDS.items()}
            for _ in range(given.rounds)
        ]
    finally:
        collector.terminate()
    base = {index: [one["nothing"][index] for one in rounds] for index in (0, 1)}
    for kind in KINDS:
        cpu, wall = ([one[kind][index] for one in rounds] for index in (0, 1))
        more = [a - b for a, b in zip(cpu, base[0], strict=True)]
        print(
            f"{kind:14} CPU {statistics.median(cpu):6.2f} ms a batch, {statistics.median(more):+5.2f};"
            f" time {statistics.median(wall):6.2f} ms"
        )


if __name__ == "__main__":
    main()
