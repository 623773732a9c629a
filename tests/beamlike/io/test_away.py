"""Servers that are unreachable when a run starts: the error names the source or sink, without secrets."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import pytest

import beamlike as bl
from beamlike.errors import SinkError, SourceError
from beamlike.io.kafka import contact
from beamlike.spark.runner import SparkRunner
from beamlike.system import retries

SECRET = "pa55w0rd"
AWAY = "127.0.0.1:1"
COLUMNS = {"user": str, "at": int}
SASL = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "me",
    "sasl.password": SECRET,
}
S3 = {
    "aws_access_key_id": "me",
    "aws_allow_http": "true",
    "aws_endpoint_url": f"http://{AWAY}",
    "aws_region": "r",
    "aws_secret_access_key": SECRET,
}

SOURCES: dict[str, Callable[[], Any]] = {
    "kafka": lambda: bl.Kafka(AWAY, "plays", value=bl.json(COLUMNS), options=SASL),
    "redis": lambda: bl.Redis(f"redis://:{SECRET}@{AWAY}/0", "plays", group="g", fields=COLUMNS),
    "table": lambda: bl.Table(f"postgresql://me:{SECRET}@{AWAY}/db", "plays", schema=COLUMNS),
    "s3": lambda: bl.JSONLines("s3://bucket/in", schema=COLUMNS),
}
SINKS: dict[str, Callable[[], Any]] = {
    "kafka": lambda: bl.KafkaSink(AWAY, "plays", options=SASL),
    "table": lambda: bl.Table(f"postgresql+psycopg://me:{SECRET}@{AWAY}/db", "plays", mode="append"),
    "s3": lambda: bl.JSONLines("s3://bucket/out"),
}


@pytest.fixture(autouse=True)
def away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes every server unreachable, without timeouts."""
    monkeypatch.setattr(contact, "_FIRST", 0.0)
    monkeypatch.setattr(retries, "_FIRST", 0.0)
    for name, value in S3.items():
        monkeypatch.setenv(name.upper(), value)


def failure(source: Any, sink: Any, runner: Any) -> BaseException:
    """Returns the error of a run; checks that neither it nor earlier output has secrets."""

    def run() -> None:
        pipeline = bl.Pipeline("p")
        times: dict[str, Any] = {"timestamp_unit": "s", "watermark": bl.MonotonousTimestamps()}
        rows = pipeline.read("in", source, timestamp="at", **times)
        rows.with_columns(value=bl.col("user")).select("value").write("out", sink)
        assert SECRET not in f"{source!r} {sink!r} {pipeline.explain()}"
        pipeline.run(runner)

    with pytest.raises((SourceError, SinkError)) as caught:
        run()
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    return caught.value


@pytest.mark.parametrize(
    "source", [pytest.param(one, marks=pytest.mark.slow) if one == "s3" else one for one in SOURCES]
)
def test_a_source_that_is_away_is_named(source: str) -> None:
    error = failure(SOURCES[source](), bl.Memory(), bl.LocalRunner())
    assert isinstance(error, SourceError)
    assert str(error).startswith("source 'in': ")


@pytest.mark.parametrize(
    "sink", ["kafka", "table", pytest.param("s3", marks=[pytest.mark.slow, pytest.mark.long])]
)
def test_a_sink_that_is_away_is_named(sink: str) -> None:
    error = failure(bl.Rows([{"user": "ada", "at": 1}]), SINKS[sink](), bl.LocalRunner())
    assert isinstance(error, SinkError)
    assert str(error).startswith("sink 'out': ")


@pytest.mark.spark
@pytest.mark.parametrize(
    "source", ["table", "redis", pytest.param("s3", marks=[pytest.mark.slow, pytest.mark.long])]
)
def test_on_spark_it_is_the_same_error(spark: Any, source: str) -> None:
    error = failure(SOURCES[source](), bl.Memory(), SparkRunner(session=spark, shards=1))
    assert isinstance(error, SourceError)
    assert str(error).startswith("source 'in': ")


@pytest.mark.parametrize(
    "url",
    [
        "http://:{}@h:1/0",
        "redis://:{}/x@h:1/0",
        "redis://:{}#x@h:1/0",
        "redis://:1?{}@h:1/0",
        "redis://:x@{}@h:1/0",
        "redis://h:{}/0",
        "{}",
    ],
)
def test_an_address_that_is_none_is_not_shown(url: str) -> None:
    with pytest.raises(ValueError, match="Redis: url ") as caught:
        bl.Redis(url.format(SECRET), "plays", group="g", fields=COLUMNS)
    assert SECRET not in str(caught.value)


def test_of_an_address_no_part_of_the_password_is_shown() -> None:
    for given in (
        bl.Redis(f"redis://me:{SECRET}@h:1/0?password={SECRET}", "plays", group="g", fields=COLUMNS),
        bl.Table(f"postgresql://me:x@{SECRET}@h:1/db", "plays"),
    ):
        assert SECRET not in repr(given)
        assert "h:1" in repr(given)
