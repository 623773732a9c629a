"""The session beside the user's own: its settings, the code on its workers, its silence on the terminal."""

from __future__ import annotations

import ast
import importlib
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from beamlike.errors import RunError
from beamlike.spark.session import launch
from beamlike.spark.session.session import open_session, ship, use_state_store, worker_environment
from tests.support.spark_versions import needs_state_store, settings

pytestmark = pytest.mark.spark

ANSWERED = "answer string"


def beside(session: SparkSession, **config: str) -> SparkSession:
    settings = {name.replace("__", "."): value for name, value in config.items()}
    return open_session(session, master=None, shards=2, name="test", config=settings)


def asking(question: Callable[[], Any]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def answer(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"answer": [str(question())]})

    return answer


def ask(session: SparkSession, question: Callable[[], Any]) -> str:
    """Returns the answer of a worker in a function built outside of `worker_environment`."""
    return answer_of(session.range(1).mapInArrow(asking(question), ANSWERED))


def ask_inside(session: SparkSession, question: Callable[[], Any]) -> str:
    """Returns the answer of a worker in a function built under `worker_environment`."""
    with worker_environment(session):
        frame = session.range(1).mapInArrow(asking(question), ANSWERED)
    return answer_of(frame)


def answer_of(frame: DataFrame) -> str:
    (row,) = frame.collect()
    return str(row.answer)


@pytest.fixture
def rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's module `rules` that workers cannot import by themselves, with a function `limit`."""
    path = tmp_path / "rules.py"
    path.write_text("def limit():\n    return 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield path
    sys.modules.pop("rules", None)


def limit() -> Callable[[], Any]:
    """Returns a question that a worker can only answer with the user's module."""
    rules = importlib.import_module("rules")
    return lambda: f"{rules.limit()} of {rules.__file__}"


def snapshot(session: SparkSession) -> dict[str, object]:
    """Returns the parts of an existing session that a new one might change."""
    context = session.sparkContext
    return {
        "settings": settings(session),
        "context": sorted(context.getConf().getAll()),
        "environment": dict(context.environment),
        "includes": list(context._python_includes or []),
        "files": context.listFiles,
        "path": list(sys.path),
        "variables": dict(os.environ),
        "views": sorted(table.name for table in session.catalog.listTables()),
    }


def test_a_given_session_stays_as_it_was(spark: SparkSession, rules: Path) -> None:
    question = limit()
    before, active = snapshot(spark), SparkSession.getActiveSession()
    opened = beside(spark, spark__sql__caseSensitive="true")
    ship(opened, ["rules"])
    assert ask_inside(opened, question).startswith("1 of ")
    opened.range(1).createOrReplaceTempView("of_the_new_one")
    assert snapshot(spark) == before
    assert SparkSession.getActiveSession() is active


def test_the_new_session_has_the_settings_and_views_of_the_given_one(spark: SparkSession) -> None:
    given = spark.newSession()
    given.conf.set("spark.sql.ansi.enabled", "false")
    given.range(3).createOrReplaceTempView("plays")
    opened = beside(given)
    assert opened.conf.get("spark.sql.ansi.enabled") == "false"
    assert opened.table("plays").count() == 3


def test_our_settings_go_on_top_and_the_users_config_on_top_of_them(spark: SparkSession) -> None:
    opened = beside(spark, spark__sql__session__timeZone="Europe/Paris", spark__driver__memory="2g")
    assert opened.conf.get("spark.sql.shuffle.partitions") == "2"
    assert opened.conf.get("spark.sql.session.timeZone") == "Europe/Paris"
    assert beside(spark).conf.get("spark.sql.session.timeZone") == "UTC"


def test_settings_of_sparks_own_state_store_are_made_only_for_runs_that_use_it(spark: SparkSession) -> None:
    provider = "spark.sql.streaming.stateStore.providerClass"
    opened = beside(spark)
    assert opened.conf.get(provider, None) is None
    use_state_store(opened, {})
    assert str(opened.conf.get(provider)).endswith(".RocksDBStateStoreProvider")
    theirs = {provider: "theirs.RocksDBStateStoreProvider"}
    opened = beside(spark, **{provider.replace(".", "__"): theirs[provider]})
    use_state_store(opened, theirs)
    assert opened.conf.get(provider) == "theirs.RocksDBStateStoreProvider"


def test_spark_that_is_started_here_is_patient_with_a_busy_machine(spark: SparkSession) -> None:
    given = spark.sparkContext.getConf()
    assert given.get("spark.python.authenticate.socketTimeout") == "60s"
    assert given.get("spark.network.timeout") == "300s"
    # Spark tells its Python workers, and this process, in seconds.
    assert os.environ["SPARK_AUTH_SOCKET_TIMEOUT"] == "60"


def test_there_are_as_many_shards_as_cores_by_default(spark: SparkSession) -> None:
    opened = open_session(spark, master=None, shards=None, name="test", config={})
    assert opened.conf.get("spark.sql.shuffle.partitions") == "2"


def test_a_setting_that_comes_too_late_is_an_error(spark: SparkSession) -> None:
    with pytest.raises(
        ValueError, match=r"spark\.driver\.memory='3g' can only be set when Spark starts.*'2g'"
    ):
        beside(spark, spark__driver__memory="3g")


def test_spark_that_runs_already_is_used(spark: SparkSession) -> None:
    for master in (None, "local[2]"):
        opened = open_session(None, master=master, shards=1, name="test", config={})
        assert opened.sparkContext is spark.sparkContext
    with pytest.raises(ValueError, match=r"already, on master 'local\[2\]', not 'local\[4\]'"):
        open_session(None, master="local[4]", shards=1, name="test", config={})


def test_an_object_that_is_no_session_is_refused() -> None:
    with pytest.raises(TypeError, match="must be a SparkSession, classic or of Spark Connect, not <object"):
        open_session(object(), master=None, shards=1, name="test", config={})  # type: ignore[arg-type]


@pytest.mark.slow
def test_polars_has_one_thread_in_our_workers_and_all_in_the_users(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def threads() -> int:
        return int(importlib.import_module("polars").thread_pool_size())

    context = spark.sparkContext  # as one that was started without our settings
    users = {name: value for name, value in context.environment.items() if name != "POLARS_MAX_THREADS"}
    monkeypatch.setattr(context, "environment", users)
    opened = beside(spark)
    assert ask_inside(opened, threads) == "1"
    assert context.environment is users
    assert ask(spark, threads) == ask(opened, threads) == str(os.cpu_count())


def test_what_polars_frees_is_kept_in_our_workers_unless_the_user_says_otherwise(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    variable = "_RJEM_MALLOC_CONF"

    def settings() -> str:
        return str(os.environ.get(variable))

    # Where polars is loaded, it puts its own defaults before them.
    context, opened, ours = spark.sparkContext, beside(spark), "dirty_decay_ms:10000,narenas:1"
    assert ask_inside(opened, settings).endswith(ours)
    assert not ask(spark, settings).endswith(ours)
    monkeypatch.setattr(context, "environment", context.environment | {variable: "dirty_decay_ms:0"})
    assert ask_inside(opened, settings).endswith("dirty_decay_ms:0")


def test_the_environment_is_put_back_after_an_error(spark: SparkSession) -> None:
    opened, before = beside(spark), snapshot(spark)
    ship(opened, [])
    with pytest.raises(KeyError), worker_environment(opened):
        raise KeyError
    assert snapshot(spark) == before


def test_shipped_modules_reach_our_workers_only(spark: SparkSession, rules: Path) -> None:
    opened, question = beside(spark), limit()
    ship(opened, ["rules", "polars", "json"])
    assert ask_inside(opened, question).endswith(".zip/rules.pyc")
    for session in (opened, spark):
        with pytest.raises(PySparkException, match="No module named 'rules'"):
            ask(session, question)


def test_our_packages_come_from_the_archive(spark: SparkSession) -> None:
    opened = beside(spark)
    ship(opened, [])
    folder = ask_inside(opened, lambda: importlib.import_module("stages").__path__[0])
    assert folder.endswith(".zip/stages")


def test_a_module_that_was_edited_is_shipped_again(spark: SparkSession, rules: Path) -> None:
    opened = beside(spark)
    for number in ("1", "22"):
        rules.write_text(f"def limit():\n    return {number}\n")
        sys.modules.pop("rules", None)
        importlib.invalidate_caches()
        question = limit()
        ship(opened, ["rules"])
        ship(opened, ["rules"])
        assert ask_inside(opened, question).startswith(f"{number} of ")


def counter(question: Callable[[], Any]) -> Any:
    """Returns an aggregate that needs the user's module where it is unpickled: on the driver, which tests it, and in
    tasks.
    """
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class Counter(StatefulProcessor):
        def init(self, handle: Any) -> None:
            question()
            self.count = handle.getValueState("count", "n long")

        def handleInputRows(
            self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
        ) -> Iterator[pd.DataFrame]:
            n = (self.count.get()[0] if self.count.exists() else 0) + sum(len(frame) for frame in rows)
            self.count.update((n,))
            yield pd.DataFrame({"answer": [f"{n}, {question()}"]})

        def close(self) -> None: ...

    return Counter()


@pytest.mark.slow
@needs_state_store
def test_a_stateful_query_runs_and_stops_in_silence(
    spark: SparkSession, rules: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    opened, question = beside(spark), limit()
    use_state_store(opened, {})
    ship(opened, ["rules", __name__])
    stream = opened.readStream.format("rate-micro-batch").option("rowsPerBatch", 4).load()
    with worker_environment(opened):
        counts = (
            stream.selectExpr("value % 1 AS key")
            .groupBy("key")
            .transformWithStateInPandas(counter(question), ANSWERED, "Append", "None")
        )
    answers: list[str] = []
    enough = threading.Event()

    def sink(batch: DataFrame, number: int) -> None:
        answers.extend(row.answer for row in batch.collect())
        while len(answers) == 2:  # until `stop` interrupts
            enough.set()
            batch.sparkSession.range(1).count()

    query = counts.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "c")).start()
    assert enough.wait(60)
    query.stop()
    assert query.exception() is None
    assert [answer.split(" of ")[0] for answer in answers] == ["4, 1", "8, 1"]
    assert capfd.readouterr() == ("", "")


def test_only_noise_is_kept_off_the_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    ours = "Streaming TransformWithStateInPandas Python worker"
    noise = [
        "WARNING: Using incubator modules: jdk.incubator.vector\n",
        f"Starting {ours}.\n\n",
        f"{ours} finish init stage of Python runner. Received UDF from JVM: <f>, received return type: x.\n\n",
        f"{ours} Completed execution of UDF: <f>.\n\n",
        f"{ours} Starting execution of UDF: <f>."  # another worker writes the next line
        'Traceback (most recent call last):\n  File "pyspark/daemon.py", line 9, in worker\n    outfile.flush()\n'
        "BrokenPipeError: [Errno 32] Broken pipe\n",
    ]
    kept = [
        "WARNING: All is lost\n",
        "\n",
        f"{ours} died\n",
        "10:00:00 ERROR Executor: PythonException: Traceback (most recent call last):\n",
        'Traceback (most recent call last):\n  File "pyspark/daemon.py", line 9, in worker\nValueError: no\n',
        "no newline",
    ]
    reading, writing = os.pipe()
    with open(writing, "w") as pipe:
        pipe.writelines(line for pair in zip(noise, kept, strict=False) for line in pair)
        pipe.write(kept[-1])
    with open(reading, "rb") as lines:
        launch._pass_on(lines, said := deque())
    assert capfd.readouterr() == ("", "".join(kept))
    assert [line.decode() for line in said] == [
        line for text in kept for line in text.splitlines(keepends=True) if line.strip()
    ]


CLUSTER = """
import os, sys
before = dict(os.environ)
from beamlike.spark.session.scratch import scratch
from beamlike.spark.session.session import open_session, require_python, ship, worker_environment
import rules

def where(batches):
    import os, pyarrow, stages
    for _ in batches:
        yield pyarrow.RecordBatch.from_pydict({"place": [os.getcwd(), rules.__file__, stages.__path__[0]]})

session = open_session(None, master="local-cluster[2,1,1024]", shards=2, name="test", config={})
context = session.sparkContext
names = {"JAVA_HOME", "PYSPARK_PYTHON", "SPARK_HOME", "SPARK_LOCAL_IP"}
added = {name for name in names if before.get(name) != os.environ.get(name)}
path, includes = list(sys.path), list(context._python_includes)
for _ in range(2):
    ship(session, ["__main__"])
with worker_environment(session):
    frame = session.range(0, 8, 1, 8).mapInArrow(where, "place string")
places = {row.place for row in frame.collect()}
print({
    "executors": sum(place.startswith("/") for place in places),
    "relative": {place.partition(".zip")[2] for place in places if not place.startswith("/")},
    "files sent": len(context.listFiles),
    "unchanged": path == sys.path and includes == context._python_includes,
    "added to the environment": added,
    "scratch": str(scratch()),
})
"""


@pytest.mark.slow
@pytest.mark.long
def test_executors_elsewhere_get_the_code(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(CLUSTER)
    (tmp_path / "rules.py").write_text("")
    root = Path(launch.__file__).parents[2]
    done = subprocess.run(
        [sys.executable, tmp_path / "program.py"],
        env={**os.environ, "PYTHONPATH": str(root)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    answer = ast.literal_eval(done.stdout)
    scratch = Path(answer.pop("scratch"))
    assert answer == {
        "executors": 2,
        "relative": {"/rules.pyc", "/stages"},
        "files sent": 1,
        "unchanged": True,
        "added to the environment": set(),
    }
    assert not scratch.exists()


@pytest.mark.slow
def test_java_for_loops_over_rows_keeps_its_second_compiler_and_the_users_options() -> None:
    program = """
from beamlike.spark.session.session import open_session
options = {"spark.driver.extraJavaOptions": "-Dours=no"}
session = open_session(None, master="local[1]", shards=1, name="test", config=options, row_loops=True)
java = session._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean()
print(list(java.getInputArguments()))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    given = [option for option in ast.literal_eval(done.stdout) if "Tier" in option or "ours" in option]
    assert [option.partition("=")[0] for option in given] == [
        "-XX:Tier4InvocationThreshold",
        "-XX:Tier4MinInvocationThreshold",
        "-XX:Tier4CompileThreshold",
        "-XX:Tier4BackEdgeThreshold",
        "-Dours",
    ]


def test_on_windows_spark_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(RunError, match=r"on Windows.*bl\.LocalRunner\(\), or run this in WSL"):
        open_session(None, master=None, shards=None, name="name", config={})
