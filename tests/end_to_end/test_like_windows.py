"""Runs in process without the calls that only POSIX has; open files cannot be removed or replaced."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.support.places import ROOT

LIKE = """
import sys
if sys.argv[1] != "as it is":
    from tests.support import like_windows
    like_windows.install(locks=sys.argv[1] == "Windows")
import json, os
import polars as pl
import beamlike as bl
from beamlike.cli.main import main
"""

JOB = """
def more(number):
    rows = [{"user": f"u{n % 3}", "at": number * 60 + n, "city": "Köln", "score": n} for n in range(20)]
    with open(f"data/{number}.jsonl", "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\\n" for row in [*rows, {"user": "nobody"}])

def scores(ages=None):
    p = bl.Pipeline("scores")
    schema = {"user": str, "at": int, "city": str, "score": int}
    source = bl.JSONLines("data", schema=schema, max_files_per_trigger=1)
    plays = p.read("plays", source, timestamp="at", timestamp_unit="s", watermark=bl.BoundedOutOfOrderness("5s"))
    if ages:
        aged = plays.with_columns(age=bl.lookup(p.read("ages", ages), on="user")["age"])
        aged.select("at", "user", "age").write("aged", bl.CSV("aged"))
    plays.select("at", "user", "score").write("db", bl.Table("sqlite:///scores.sqlite", "scores", mode="append"))
    windows = plays.window_into(bl.FixedWindows("30s")).group_by("user", "city", name="windows")
    windows.aggregate(total=bl.sum("score")).write("totals", bl.Parquet("totals", partition_by="city"))
    return p

def refreshed():
    return scores(bl.Refreshed(bl.Rows([{"user": "u1", "age": 36}]), every="1h"))

def fail(record):
    raise RuntimeError("on purpose")

def attempt(call):
    try:
        call()
        return "done"
    except Exception as error:
        return f"{type(error).__name__}: {error}"

def written():
    rows = [pl.read_csv("aged/*.csv"), pl.read_parquet("totals/**/*.parquet", hive_partitioning=True)]
    return [sorted(map(str, frame.rows())) for frame in rows]

os.mkdir("data"); more(0); more(1)
found, alive, refused = {}, [], []
def follow(record):
    alive.append(bl.observe.History.open("c").alive)
    refused.append(attempt(lambda: bl.savepoint.save("c", "refused")))
refreshed().run(bl.LocalRunner(checkpoint="c", on_batch=follow))
more(2)
found["failed"] = attempt(lambda: refreshed().run(bl.LocalRunner(checkpoint="c", on_batch=fail)))
more(3)
refreshed().run(bl.LocalRunner(checkpoint="c", drain=True))
found["checkpoint"] = written()

def again(record):
    other, any_rows = bl.Pipeline("other"), bl.Rows([{"at": "2026-01-01T00:00:00Z"}])
    other.read("rows", any_rows, timestamp="at", watermark=bl.MonotonousTimestamps()).write("out", bl.Memory())
    if sys.argv[1] != "no locks":
        refused.append(attempt(lambda: other.run(bl.LocalRunner(records="run.jsonl"))))
run = scores().run(bl.LocalRunner(records="run.jsonl", on_batch=again))
found["records"] = [[one.batch, one.sinks] for one in bl.observe.History.open("run.jsonl").batches]

scores().run(bl.LocalRunner(checkpoint="c2"))
bl.savepoint.save("c2", "saved")
bl.savepoint.restore("saved", "c3", scores(), runner="local")
more(4)
scores().run(bl.LocalRunner(checkpoint="c3", drain=True))
found["savepoint"] = written()
for command in (["status", "c3"], ["why", "c3", "--stage", "windows"]):
    try:
        main(command)
    except SystemExit as ended:
        found[command[0]] = ended.code
left = [os.path.join(folder, name) for folder, _, names in os.walk(".") for name in names]
found["left"] = sorted(name for name in left if name.endswith((".lock", ".now", ".tmp", ".new", "-wal", "/lock")))
print(json.dumps({**found, "alive": alive, "refused": refused}))
"""

RENAME = """
from beamlike.system import durable
for name in ("new", "old"):
    with open(name, "wb") as file:
        file.write(name.encode())
reader = open("old", "rb")
durable.time.sleep = lambda seconds: reader.close()
durable.replace("new", "old")
print(json.dumps(open("old", "rb").read().decode()))
"""


def run(script: str, how: str, folder: Path, **options: Any) -> Any:
    """Runs a script and returns the JSON that it prints."""
    done = subprocess.run(
        [sys.executable, "-X", "warn_default_encoding", "-c", LIKE + script, how],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@functools.cache
def usual() -> Any:
    """Returns the result with all calls."""
    with tempfile.TemporaryDirectory() as folder:
        return run(JOB, "as it is", Path(folder))


def test_on_windows_a_run_gives_the_same_and_its_locks_hold(tmp_path: Path) -> None:
    found = run(JOB, "Windows", tmp_path)
    assert {**found, "refused": []} == {**usual(), "refused": []}
    assert found["left"] == []
    assert found["alive"] == [True, True]
    others = [text.partition(", since")[0].partition(" in process")[0] for text in found["refused"]]
    checkpoint = f"CheckpointError: the checkpoint {tmp_path}/c is in use by the run of 'scores'"
    records = "RecordsInUse: the records 'run.jsonl' belong to another run that is alive,"
    assert others == [checkpoint, checkpoint, *[records] * len(found["records"])]


@pytest.mark.slow
def test_without_any_locks_a_run_gives_the_same_and_nobody_knows_if_it_is_alive(tmp_path: Path) -> None:
    found = run(JOB, "no locks", tmp_path)
    names = ("alive", "refused")
    assert {**found, **dict.fromkeys(names)} == {**usual(), **dict.fromkeys(names)}
    assert found["alive"] == [None, None]


def test_a_reader_gets_time_to_close_a_file_that_is_replaced(tmp_path: Path) -> None:
    assert run(RENAME, "Windows", tmp_path) == "new"
