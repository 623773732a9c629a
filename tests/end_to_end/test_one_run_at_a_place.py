"""Two simultaneous runs of one name: the second is refused where it would undo the first one's output."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import sqlalchemy as sa

import beamlike as bl
from beamlike.errors import SinkInUse
from beamlike.io import Part
from beamlike.io.sql.holding import ServerLock
from tests.beamlike.io.test_sources import whole
from tests.support.databases import execute, postgres, rows_of
from tests.support.places import ROOT

ROWS = 50
JOB = """
import sys
from tests.end_to_end.test_one_run_at_a_place import pipeline
def wait(batch):
    if batch == 1:
        print("writing", flush=True)
        sys.stdin.readline()
pipeline(sys.argv[1:], wait).run()
"""


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgres() as url:
        yield url


@pytest.fixture
def places(server: str, tmp_path: Path) -> list[str]:
    execute(server, "DROP TABLE IF EXISTS t", "DROP TABLE IF EXISTS beamlike_ledger")
    return ["out", f"sqlite:///{tmp_path}/out.db", server]


def pipeline(
    places: list[str], seen: Callable[[int], object] = lambda batch: None, name: str = "p"
) -> bl.Pipeline:
    """Declares ten rows a batch to these folders and databases; `seen` is called in each batch before the writes."""
    p = bl.Pipeline(name)
    source = bl.Rows([{"at": at} for at in range(ROWS)], rows_per_batch=10)
    rows = p.read("rows", source, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
    for number, place in enumerate(places):
        sink = bl.Table(place, "t", "append") if ":" in place else bl.JSONLines(place)
        rows.write(f"out {number}", sink)
    rows.write("callback", bl.Callback(lambda frame, batch: seen(batch)))
    return p


@contextmanager
def another(*places: str) -> Iterator[subprocess.Popen[str]]:
    """Starts a process that stops in the middle of a run, and yields it; it goes on after the block, if not killed."""
    job = [sys.executable, "-c", JOB, *places]
    root = str(ROOT)
    with subprocess.Popen(
        job, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={"PYTHONPATH": root}
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "writing\n"
            yield process
            process.communicate("\n")
        except BaseException:
            process.kill()
            raise


def count(place: str) -> int:
    """Returns the number of rows at a destination."""
    return len(rows_of(place, "t")) if ":" in place else len(whole(bl.JSONLines(place)))


def hidden(folder: str = "") -> list[str]:
    return sorted(str(path) for path in Path(folder).rglob(".*"))


def test_the_second_run_of_a_name_is_told_who_writes_there_and_others_are_not(
    places: list[str], tmp_path: Path
) -> None:
    with another(*places) as process:
        for place in places:
            told = rf"sink 'out 0': .* is being written by the run 'p' in process {process.pid},? "
            with pytest.raises(SinkInUse, match=told + ".*give this run a name of its own"):
                pipeline([place]).run()
        pipeline(places, name="q").run()
        assert pipeline(places).run(bl.LocalRunner(run_id="r")).run_id == "r"
        elsewhere = pipeline(["other", f"sqlite:///{tmp_path}/other.db"])
        rows = elsewhere.read("more", bl.Rows([{"n": 1}]))
        rows.write("csv", bl.CSV("out"))
        rows.write("table", bl.Table(f"sqlite:///{tmp_path}/out.db", "more", "append"))
        elsewhere.run()
    assert process.returncode == 0
    assert [count(place) for place in places[1:]] == [3 * ROWS] * 2
    runs = [path.name.split("-")[1] for path in Path("out").glob("*.jsonl")]
    assert sorted(runs) == [*["p"] * 5, *["q"] * 5, *["r"] * 5]
    assert hidden() == []


def test_who_was_killed_keeps_nobody_out_and_what_it_left_goes(places: list[str]) -> None:
    with another(*places) as process:
        process.kill()
        process.wait()
        assert {Path(path).suffix for path in hidden()} == {".tmp", ".lock"}
        pipeline(places[1:]).run()
        pipeline(places[:1]).run(bl.LocalRunner(run_id="q"))
    assert count("out") == ROWS
    assert hidden() == []


def test_two_runs_of_one_checkpoint_and_its_copy_are_kept_apart_at_each_place(places: list[str]) -> None:
    pipeline(places).run(bl.LocalRunner(checkpoint="original"))
    shutil.copytree("original", "copy")
    run = json.loads(Path("copy", "beamlike", "manifest.json").read_text())["run"]
    for place in places:
        [(_, sink)] = [
            (name, one.sink) for name, one in pipeline([place]).plan().sinks.items() if name != "callback"
        ]
        with (
            sink.hold(run),
            pytest.raises(SinkInUse, match=f"by the run '{run}' in .*; it has a copy of this"),
        ):
            pipeline([place]).run(bl.LocalRunner(checkpoint="copy"))
        pipeline([place]).run(bl.LocalRunner(checkpoint="copy"))
    assert hidden("out") == []


def test_what_a_killed_run_had_of_dead_letters_goes_too() -> None:
    left = bl.JSONLines("p-dead-letters").beside("q")
    left.write(pl.DataFrame({"row": ["x"]}), Part("q", 0))
    said = {"what": "", "host": socket.gethostname(), "pid": 1, "since": ""}
    Path(".p-dead-letters.part-q.jsonl.lock").write_text(json.dumps(said))
    pipeline([]).run()
    assert hidden() == []


def test_the_lock_of_a_server_outlasts_its_timeouts_and_holds_nothing_back(server: str) -> None:
    execute(server, "ALTER ROLE tests SET idle_in_transaction_session_timeout = '1h'")
    try:
        with bl.Table(server, "t", "append").hold("p") as lock:
            assert isinstance(lock, ServerLock)
            (row,) = rows_of(server, "pg_stat_activity WHERE starts_with(application_name, 'process')")
            assert (row["state"], row["backend_xid"], row["backend_xmin"]) == (
                "idle in transaction",
                None,
                None,
            )
            assert lock._connection.scalar(sa.text("SHOW idle_in_transaction_session_timeout")) == "0"
    finally:
        execute(server, "ALTER ROLE tests RESET idle_in_transaction_session_timeout")


def test_a_run_that_is_refused_one_place_lets_go_of_the_others() -> None:
    with bl.JSONLines("b").hold("p"):
        with pytest.raises(SinkInUse, match="sink 'out 1'"):
            pipeline(["a", "b"]).run()
        with bl.JSONLines("a").hold("p"):
            pass
    pipeline(["a", "b"], lambda batch: bl.JSONLines("a").hold("q").release()).run()


def test_dead_letters_of_runs_of_one_name_in_one_folder_are_all_kept() -> None:
    def run(seen: Callable[[], Any] = lambda: None) -> bl.local.LocalRun:
        p = bl.Pipeline("p", max_dead_letters=9)
        source = bl.Rows([{"at": "never"}, {"at": "1"}], rows_per_batch=1)
        rows = p.read("rows", source, timestamp="at", watermark=bl.MonotonousTimestamps())
        rows.write("out", bl.Memory())
        return p.run(bl.LocalRunner(on_batch=lambda record: seen()))

    inner: list[bl.local.LocalRun] = []
    outer = run(lambda: inner.append(run()) if not inner else None)
    assert (outer.dead_letters, inner[0].dead_letters) == ("p-dead-letters", "p-dead-letters-2")
    for done in (outer, inner[0]):
        assert len(whole(bl.JSONLines(done.dead_letters))) == 2
    assert hidden() == []


def test_where_nothing_can_be_made_a_run_needs_no_folder_for_dead_letters(tmp_path: Path) -> None:
    (tmp_path / ".p-dead-letters.part-p.jsonl.lock").mkdir()
    pipeline([]).run()


@pytest.mark.parametrize(("given", "error"), [(1, TypeError), (" ", ValueError), ("@x", ValueError)])
def test_what_cannot_name_a_run_is_refused(given: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"name (a|of a) run"):
        bl.LocalRunner(run_id=given)


@pytest.mark.slow
@pytest.mark.spark
def test_a_run_on_spark_without_a_checkpoint_has_the_name_of_one_in_process(spark: Any) -> None:
    runner = bl.SparkRunner(session=spark, shards=2)
    with bl.JSONLines("out").hold("p"):
        with pytest.raises(SinkInUse, match=r"or on Spark a checkpoint$"):
            pipeline(["out"]).run(runner)
        pipeline(["out"]).run(bl.SparkRunner(session=spark, shards=2, checkpoint="checkpoint"))
    pipeline(["out"], lambda batch: refused()).run(runner)
    assert count("out") == 2 * ROWS
    assert hidden("out") == []


def refused() -> None:
    with pytest.raises(SinkInUse):
        pipeline(["out"]).run()


def test_runs_that_replace_their_files_in_the_same_partitions_at_once_lose_none() -> None:
    """Each run creates folders that another run removes while they are empty."""

    def replace(run: str) -> None:
        for n in range(25):
            old = bl.JSONLines("out", partition_by="k")
            with old.hold(run):
                sink = old.beside(run)
                sink.start(run)
                sink.write(pl.DataFrame({"n": [n] * 4, "k": [n % 3, 3, 4, 5]}), Part(run, 0))
                sink.publish(run)
            old.write(pl.DataFrame({"n": [n], "k": [n % 3]}), Part(f"{run}-in-place", 0))
            old.start(f"{run}-in-place")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(replace, "abcd"))
    assert whole(bl.JSONLines("out"))["n"].to_list() == [24] * 16
    assert hidden() == []
