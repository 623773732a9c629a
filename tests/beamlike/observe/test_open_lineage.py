"""Events of OpenLineage, as a collector receives them, compared with the specification."""

from __future__ import annotations

import subprocess
import sys

import polars as pl
import pytest

from tests.support.places import ROOT

pytest.importorskip("openlineage.client")
pytest.importorskip("opentelemetry.proto")  # for the receivers of both

import beamlike as bl
from tests.support.collectors import lineage_collector

MONOTONOUS = bl.MonotonousTimestamps()


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch, tmp_path):
    """Hides the settings and the repository of the user who runs the tests."""
    for name in ("CONFIG", "URL", "NAMESPACE", "PARENT_ID", "DISABLED"):
        monkeypatch.delenv(f"OPENLINEAGE_{name}", raising=False)
    monkeypatch.chdir(tmp_path)


def pipeline(tmp_path, fn=None) -> bl.Pipeline:
    plays = pl.DataFrame({"user": ["ada", "bob", "ada"], "points": [3, 4, 5], "at": [1, 2, 70]})
    plays.write_parquet(tmp_path / "plays.parquet")
    p = bl.Pipeline("scores", on_error="fail")
    read = p.read(
        "plays",
        bl.Parquet(str(tmp_path / "*.parquet")),
        timestamp="at",
        timestamp_unit="s",
        watermark=MONOTONOUS,
    )
    read = read if fn is None else read.map(fn, schema=read.schema)
    ages = p.read("ages", bl.Rows([{"name": "ada", "age": 36}]))
    counted = read.filter(bl.col("points") > 0).with_columns(
        age=bl.lookup(ages, left_on="user", right_on="name")["age"], twice=2 * bl.col("points")
    )
    counted.window_into(bl.FixedWindows("1m")).group_by("user").aggregate(
        score=bl.sum("twice"), age=bl.max("age")
    ).write("out", bl.JSONLines(str(tmp_path / "out")))
    return p


def events_of(monkeypatch, run) -> list[dict]:
    """Yields the events that a collector receives in this context."""
    with lineage_collector() as (address, events):
        monkeypatch.setenv("OPENLINEAGE_URL", address)
        run()
    return events


def test_a_run_names_its_datasets_their_columns_and_rows(monkeypatch, tmp_path):
    p = pipeline(tmp_path)
    events = events_of(monkeypatch, lambda: p.run(bl.LocalRunner(telemetry=bl.observe.OpenLineage())))
    assert [event["eventType"] for event in events] == ["START", "COMPLETE"]
    assert len({event["run"]["runId"] for event in events}) == 1
    end = events[-1]
    assert (end["job"]["namespace"], end["job"]["name"]) == ("default", "scores")
    assert end["job"]["facets"]["jobType"]["processingType"] == "BATCH"
    assert end["run"]["facets"]["processing_engine"]["name"] == "polars"
    (plays,) = end["inputs"]
    assert (plays["namespace"], plays["name"]) == ("file", str(tmp_path))
    assert plays["inputFacets"]["inputStatistics"]["rowCount"] == 3
    assert [field["name"] for field in plays["facets"]["schema"]["fields"]] == ["user", "points", "at"]
    (out,) = end["outputs"]
    assert (out["namespace"], out["name"]) == ("file", str(tmp_path / "out"))
    assert out["outputFacets"]["outputStatistics"]["rowCount"] == 3
    schema = {field["name"]: field["type"] for field in out["facets"]["schema"]["fields"]}
    assert schema["score"] == "Int64"
    lineage = out["facets"]["columnLineage"]
    assert uses(lineage["fields"]["score"]["inputFields"]) == {("points", "DIRECT", "AGGREGATION")}
    assert uses(lineage["fields"]["user"]["inputFields"]) == {("user", "DIRECT", "IDENTITY")}
    assert uses(lineage["fields"]["window_end"]["inputFields"]) == {("at", "DIRECT", "TRANSFORMATION")}
    assert "age" not in lineage["fields"]  # of rows in memory, which are no dataset
    assert uses(lineage["dataset"]) == {
        ("points", "INDIRECT", "FILTER"),
        ("user", "INDIRECT", "GROUP_BY"),
        ("user", "INDIRECT", "JOIN"),
        ("at", "INDIRECT", "WINDOW"),
    }


def uses(fields: list[dict]) -> set[tuple[str, str, str]]:
    return {
        (field["field"], use["type"], use["subtype"]) for field in fields for use in field["transformations"]
    }


def test_a_running_run_sends_an_event_in_each_interval(monkeypatch, tmp_path):
    stream = bl.Rows([{"n": n, "at": n} for n in range(6)], rows_per_batch=1)
    p = bl.Pipeline("counts")
    p.read("rows", stream, timestamp="at", timestamp_unit="s", watermark=MONOTONOUS).write(
        "out", bl.CSV(str(tmp_path / "out"))
    )
    now = [0]

    def clock() -> int:
        return now[0]

    def on_batch(record) -> None:
        now[0] += 20_000_000

    def run() -> None:
        telemetry = bl.observe.OpenLineage(every="45s")
        p.run(bl.LocalRunner(telemetry=telemetry, clock=clock, on_batch=on_batch))

    events = events_of(monkeypatch, run)
    # A batch is exported before `on_batch` moves the clock.
    assert [event["eventType"] for event in events] == ["START", "RUNNING", "RUNNING", "COMPLETE"]
    times = [event["eventTime"] for event in events]
    assert times == [f"1970-01-01T00:0{at // 60}:{at % 60:02d}.000+00:00" for at in (0, 60, 120, 140)]
    written = [event["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] for event in events]
    assert written == [0, 4, 6, 6]


def test_a_run_that_fails_says_why_without_secrets(monkeypatch, tmp_path):
    def fails(row):
        raise ValueError("nothing at kafka://ada:s3cret@broker, sasl.password='s3cret'")

    def run() -> None:
        with pytest.raises(ValueError, match="s3cret"):
            pipeline(tmp_path, fails).run(bl.LocalRunner(telemetry=bl.observe.OpenLineage()))

    events = events_of(monkeypatch, run)
    assert [event["eventType"] for event in events] == ["START", "FAIL"]
    message = events[-1]["run"]["facets"]["errorMessage"]["message"]
    assert message == "ValueError: nothing at kafka://***@broker, sasl.password=***"


def test_a_run_without_an_end_is_a_stream_whose_stop_completes_it(monkeypatch, tmp_path):
    def run() -> None:
        runner = bl.LocalRunner(
            checkpoint=str(tmp_path / "checkpoint"), trigger="1 second", telemetry=bl.observe.OpenLineage()
        )
        runner.start(pipeline(tmp_path).plan()).stop()

    events = events_of(monkeypatch, run)
    assert [event["eventType"] for event in events] == ["START", "COMPLETE"]
    assert events[0]["job"]["facets"]["jobType"]["processingType"] == "STREAMING"


def test_the_environment_names_the_namespace_and_the_parent(monkeypatch, tmp_path):
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "games")
    parent = "0193f2a0-0000-7000-8000-000000000000"
    monkeypatch.setenv("OPENLINEAGE_PARENT_ID", f"airflow/nightly.scores/{parent}")
    p = pipeline(tmp_path)
    events = events_of(monkeypatch, lambda: p.run(bl.LocalRunner(telemetry=bl.observe.OpenLineage())))
    assert events[0]["job"]["namespace"] == "games"
    facet = events[0]["run"]["facets"]["parent"]
    assert facet["job"] == {"namespace": "airflow", "name": "nightly.scores", "facets": {}} or (
        facet["job"]["namespace"],
        facet["job"]["name"],
    ) == ("airflow", "nightly.scores")
    assert facet["run"]["runId"] == parent


def test_the_address_of_the_code_loses_its_token(monkeypatch, tmp_path):
    monkeypatch.setenv("OPENLINEAGE__FACETS__SOURCE_CODE_LOCATION__DISABLED", "false")
    folder = tmp_path / ".git"
    folder.mkdir()
    (folder / "config").write_text('[remote "origin"]\n\turl = https://ada:s3cret@git.example/scores.git\n')
    p = pipeline(tmp_path)
    events = events_of(monkeypatch, lambda: p.run(bl.LocalRunner(telemetry=bl.observe.OpenLineage())))
    assert events[0]["job"]["facets"]["sourceCodeLocation"]["url"] == "https://***@git.example/scores.git"
    assert "s3cret" not in str(events)


class Queue:
    """A user-defined sink that names the dataset it writes."""

    def __init__(self, *named):
        self.named = [*named]

    def write(self, frame, part):
        pass

    def datasets(self):
        return self.named


class Nameless:
    """A user-defined sink without a name."""

    def write(self, frame, part):
        pass


def test_a_sink_of_the_users_own_is_named_by_itself_or_by_its_step(monkeypatch, tmp_path):
    p = bl.Pipeline("scores")
    rows = p.read("rows", bl.Rows([{"n": 1}]))
    rows.write("queue", Queue(("amqp://broker:5672", "plays")))
    rows.write("nameless", Nameless())
    rows.write("memory", bl.Memory())
    events = events_of(monkeypatch, lambda: p.run(bl.LocalRunner(telemetry=bl.observe.OpenLineage())))
    names = [(one["namespace"], one["name"]) for one in events[-1]["outputs"]]
    assert sorted(names) == [("amqp://broker:5672", "plays"), ("default", "scores.nameless")]
    assert events[-1]["inputs"] == []


def test_a_collector_that_refuses_is_reported_once_and_the_run_is_whole(monkeypatch, caplog, tmp_path):
    with lineage_collector(status=403) as (address, events):
        monkeypatch.setenv("OPENLINEAGE_URL", address)
        run = pipeline(tmp_path).run(bl.LocalRunner(telemetry=bl.observe.OpenLineage()))
    assert run.batches
    assert [event["eventType"] for event in events] == ["START", "COMPLETE"]
    (message,) = [record.getMessage() for record in caplog.records if "telemetry" in record.getMessage()]
    assert message.startswith(
        "telemetry by OpenLineage fails, and the run continues without: HTTPError: 403 Client Error"
    )


def test_one_object_serves_several_runs(monkeypatch, tmp_path):
    p = pipeline(tmp_path)

    def run() -> None:
        runner = bl.LocalRunner(telemetry=bl.observe.OpenLineage())
        p.run(runner)
        p.run(runner)

    events = events_of(monkeypatch, run)
    assert [event["eventType"] for event in events] == ["START", "COMPLETE"] * 2
    assert len({event["run"]["runId"] for event in events}) == 2


def test_a_wrong_setting_is_refused_before_anything_runs(monkeypatch):
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "pigeon")
    with pytest.raises(Exception, match="pigeon"):
        bl.observe.OpenLineage()


def test_the_interval_must_be_positive():
    with pytest.raises(ValueError, match="OpenLineage: every must be longer than nothing, not 0s"):
        bl.observe.OpenLineage(every=0)


def test_without_the_libraries_it_says_how_to_install_them():
    code = (
        "import sys; sys.modules['openlineage'] = sys.modules['opentelemetry'] = None; import beamlike\n"
        "for name in ('OpenLineage', 'OpenTelemetry'):\n"
        "    try: getattr(beamlike.observe, name)\n"
        "    except ModuleNotFoundError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "OpenLineage needs its client: pip install 'beamlike[openlineage]'",
        "OpenTelemetry needs its SDK: pip install 'beamlike[opentelemetry]'",
    ]
