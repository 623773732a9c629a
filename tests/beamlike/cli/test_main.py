"""The command line: the runs and output of its commands, their errors and exit codes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from beamlike.cli.main import main
from beamlike.records.writer import RecordWriter
from tests.support.histories import PLAN, waiting
from tests.support.places import ROOT

MODULE = '''
"""Pipelines of a user."""

from __future__ import annotations

import beamlike as bl
from beamlike import Pipeline

read = {}

def make(name: str, times=(1, None, 70, 2)) -> bl.Pipeline:
    p = bl.Pipeline(name)
    rows = bl.Rows([{"at": second} for second in times], schema={"at": int}, rows_per_batch=1)
    read[name] = p.read("clicks", rows, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
    windowed = read[name].window_into(bl.FixedWindows("1m"))
    windowed.aggregate(n=bl.count()).named("counted").write("out", bl.CSV("out"))
    return p

clicks = make("clicks")
number = 5

def from_function() -> bl.Pipeline:
    return make("from function")

def with_defaults(name="defaults", *more, **others) -> Pipeline:
    return make(name, times=[1])

def unannotated():
    return make("unannotated")

def taken() -> bl.Pipeline:
    p = make("taken")
    read["taken"].dead_letters().write("lost", bl.JSONLines("lost"))
    return p

def makes_none() -> bl.Pipeline:
    return 3

def wrong_column() -> bl.Pipeline:
    p = make("wrong")
    return read["wrong"].filter(bl.col("m") > 1)

def no_files() -> bl.Pipeline:
    p = bl.Pipeline("no files")
    return p.read("x", bl.Parquet("nowhere"), timestamp="at", watermark=bl.MonotonousTimestamps())

def risky(name: str, fn: object) -> bl.Pipeline:
    p = bl.Pipeline(name, on_error="fail")
    source = bl.Rows([{"n": 1, "at": 1}])
    rows = p.read("clicks", source, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
    rows.select("n").map(fn, name="risky").write("more", bl.Memory())
    return p

def wrong_result() -> bl.Pipeline:
    return risky("wrong result", lambda row: None)

def fails() -> bl.Pipeline:
    return risky("fails", lambda row: 1 / 0)

def loses_all(limit: int | None = None) -> bl.Pipeline:
    p = make("loses all")
    p.max_dead_letters = limit
    read["loses all"].map(lambda row: 1 / 0, name="[bold]parse").write("more", bl.Memory())
    return p

def may_lose_all() -> bl.Pipeline:
    return loses_all(10)

unwritten = bl.Pipeline("unwritten")
'''

Invoke = Callable[..., Result]


@pytest.fixture
def invoke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """A function that runs the command line in a folder that has the module `mine`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "mine.py").write_text(MODULE)
    (tmp_path / "importing.py").write_text("import nowhere_at_all")
    (tmp_path / "broken.py").write_text("import beamlike as bl\nclicks = bl.Pipeline(' ')")
    for name in ("mine", "importing", "broken"):
        monkeypatch.delitem(sys.modules, name, raising=False)

    def run(*arguments: str) -> Result:
        result = CliRunner().invoke(main, arguments)
        for name in ("mine", "importing", "broken"):
            sys.modules.pop(name, None)
        return result

    return run


def test_a_pipeline_of_a_module_in_this_folder_is_run_and_its_totals_are_shown(invoke: Invoke) -> None:
    result = invoke("run", "mine:clicks")
    assert result.exit_code == 0, result.output
    totals = [line.split("│")[1:-1] for line in result.stdout.splitlines() if "│" in line]
    rows = {cells[0].strip(): [cell.strip() for cell in cells[1:]] for cells in totals if len(cells) == 5}
    assert rows["clicks"] == ["3", "", "", "1"]
    assert rows["counted"] == ["3", "2 on time", "1 late", ""]
    assert "Watermarks" in result.stdout
    assert len(list(Path("out").iterdir())) == 2


@pytest.mark.parametrize("name", ["from_function", "with_defaults", "unannotated"])
def test_a_function_that_makes_a_pipeline_will_do(invoke: Invoke, name: str) -> None:
    assert invoke("run", f"mine:{name}").exit_code == 0
    assert any(Path("out").iterdir())


def test_explain_prints_the_plan_and_runs_nothing(invoke: Invoke) -> None:
    result = invoke("explain", "mine:clicks")
    assert result.exit_code == 0
    assert result.stdout.startswith("pipeline clicks\n")
    assert "counted  <- clicks" in result.stdout
    assert not Path("out").exists()


def test_dead_letters_are_told_with_where_they_are(invoke: Invoke) -> None:
    result = invoke("run", "mine:clicks")
    assert "1 row that clicks could not use: see clicks-dead-letters" in result.stdout
    assert Path("clicks-dead-letters").is_dir()
    result = invoke("run", "mine:taken")
    assert "1 row that clicks could not use: see lost" in result.stdout
    assert not Path("taken-dead-letters").exists()
    assert "without an event time" not in invoke("run", "mine:with_defaults").stdout


def test_a_step_that_could_use_no_row_is_in_the_table_and_told_at_the_end(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "70")  # the way to the letters is one line even so
    shown = invoke("run", "mine:may_lose_all").stdout.splitlines()
    assert shown[-3:] == [
        "3 rows that [bold]parse could not use: see loses all-dead-letters",
        "1 row that clicks could not use: see loses all-dead-letters",
        "1 of 3 elements that counted dropped, as they arrived later than the allowed lateness: give more "
        "allowed_lateness=, or the source a watermark with a larger bound; its .late() gives them as a collection",
    ]
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown if "[bold]" in line]
    assert cells[0] == ["[bold]parse", "", "", "", "3"]
    failed = invoke("run", "mine:loses_all")
    assert failed.exit_code == 1
    assert failed.stderr.startswith(
        "Error: step '[bold]parse': it could use none of its 3 rows; the first error: Zero"
    )


@pytest.mark.parametrize("command", ["run", "explain"])
@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("mine", "'mine': write MODULE:PIPELINE, such as examples.session_lengths:earliest"),
        ("mine:", "'mine:': write MODULE:PIPELINE"),
        (":clicks", "':clicks': write MODULE:PIPELINE"),
        (".mine:clicks", "'.mine:clicks': write MODULE:PIPELINE"),
        ("mine.py:clicks", "'mine.py:clicks': a module has no path; write mine:clicks"),
        ("./mine.py:clicks", "a module has no path; write mine:clicks"),
        ("jobs/mine.py", "a module has no path; write jobs.mine:PIPELINE"),
        ("/jobs/mine.py:clicks", "a module has no path; write mine:clicks, in the folder /jobs"),
        ("min_e:clicks", "there is no module 'min_e' here or installed"),
        ("mine.sub:clicks", "there is no module 'mine.sub' here or installed"),
        (
            "mine:clik",
            "mine has no pipeline 'clik'; it has make, clicks, from_function, with_defaults, taken, makes_none, "
            "wrong_column, no_files, risky, wrong_result, fails, loses_all, may_lose_all, unwritten; did you mean "
            "'clicks'?",
        ),
        ("mine:number", "mine has no pipeline 'number'; it has make, clicks"),
        ("mine:Pipeline", "mine has no pipeline 'Pipeline'; it has make, clicks"),
        ("mine:make", "make cannot be called: it needs name; give --set name=STR"),
        ("mine:makes_none", "makes_none makes no pipeline, but 3"),
    ],
)
def test_what_is_no_pipeline_is_a_usage_error(
    invoke: Invoke, command: str, target: str, message: str
) -> None:
    result = invoke(command, target)
    assert result.exit_code == 2
    assert message in result.stderr


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (
            "mine:unwritten",
            "Error: pipeline 'unwritten' writes to no sink; call collection.write('name', sink)",
        ),
        ("mine:wrong_column", "Error: step 'clicks.filter': there is no column 'm'"),
        ("mine:no_files", "Error: step 'x': there is no file or directory 'nowhere': "),
        ("mine:wrong_result", "Error: step 'risky': expected a dict with the keys n, got None"),
        ("broken:clicks", "Error: ' ' cannot name a pipeline"),
    ],
)
def test_an_error_that_says_what_to_do_is_shown_without_a_traceback(
    invoke: Invoke, target: str, message: str
) -> None:
    result = invoke("run", target)
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)
    assert message in result.stderr
    assert "Traceback" not in result.output


def test_an_error_in_the_users_own_code_keeps_its_traceback(invoke: Invoke) -> None:
    result = invoke("run", "mine:fails")
    assert result.exit_code == 1
    assert isinstance(result.exception, ZeroDivisionError)
    assert "step 'risky'" in result.exception.__notes__[0]
    assert isinstance(invoke("run", "importing:x").exception, ModuleNotFoundError)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--drain"], "trigger= and drain= need checkpoint="),
        (["--checkpoint", "c", "--shards", "2"], "--shards: for --runner spark only"),
        (["--checkpoint", "c", "--records", "r"], "records= is for runs without a checkpoint"),
        (["--checkpoint", "c", "--conf", "a=b"], "--conf: for --runner spark only"),
        (["--runner", "spark", "--conf", "spark.jars"], "'spark.jars': write --conf KEY=VALUE"),
        (["--runner", "spark", "--conf", "=x"], "'': write --conf KEY=VALUE"),
        (["--runner", "spak"], "'spak' is not one of 'local', 'spark'"),
        (["--runner", "spark", "--shards", "0"], "0 is not in the range x>=1"),
        (
            ["--runner", "spark", "--trigger", "often"],
            "trigger must be 'available_now' or an interval such as",
        ),
        (
            ["--runner", "spark", "--drain", "--trigger", "10 seconds"],
            "drain=True needs trigger='available_now'",
        ),
    ],
)
def test_options_that_do_not_fit_are_usage_errors(invoke: Invoke, options: list[str], message: str) -> None:
    result = invoke("run", "mine:clicks", *options)
    assert result.exit_code == 2
    assert message in result.stderr
    assert not Path("out").exists()


def test_settings_of_spark_are_read_by_name(invoke: Invoke) -> None:
    settings = ["--conf", "spark.a=1", "--conf", "spark.b=x=y", "--conf", "spark.a=2"]
    command = main.commands["run"]
    with command.make_context("run", ["mine:clicks", "--runner", "spark", *settings]) as context:
        assert context.params["config"] == {"spark.a": "2", "spark.b": "x=y"}


# Looking at a run


@pytest.fixture
def recorded(invoke: Invoke) -> RecordWriter:
    """A run in `checkpoint` and the writer of its records."""
    writer = RecordWriter.open("checkpoint/beamlike/records.jsonl", PLAN)
    writer.write(waiting())
    return writer


@pytest.mark.usefixtures("recorded")
def test_why_says_who_holds_a_window(invoke: Invoke) -> None:
    result = invoke("why", "checkpoint", "--stage", "sessions")
    assert result.exit_code == 0, result.output
    assert (
        "stage `sessions` waits for source `console`, split 3, silent for 4m12s; set idle_after to let it pass"
    ) in result.stdout.splitlines()
    result = invoke("why", "checkpoint", "--stage", "average", "--window", "2026-01-31T12:00")
    assert (
        "window [2026-01-31T12:00:00Z, 2026-01-31T12:02:00Z) of stage `average` is not over" in result.stdout
    )
    result = invoke("why", "checkpoint/beamlike/records.jsonl", "--key", "7")
    assert "key 7 is not what holds the output watermark of stage `sessions`" in result.stdout


def test_watch_shows_a_run_that_is_over(invoke: Invoke, recorded: RecordWriter) -> None:
    recorded.close("ended")
    result = invoke("watch", "checkpoint")
    assert result.exit_code == 0, result.output
    assert "scores: batch 7 at 2026-01-31T12:05:00Z, ended" in result.stdout
    assert "split 3, silent for 4m12s" in result.stdout


@pytest.mark.usefixtures("recorded")
def test_report_writes_a_page(invoke: Invoke) -> None:
    pytest.importorskip("matplotlib")
    result = invoke("report", "checkpoint", "-o", "page.html")
    assert result.exit_code == 0, result.output
    assert result.stdout == "page.html\n"
    assert "scores" in Path("page.html").read_text()


@pytest.mark.usefixtures("recorded")
def test_report_says_where_it_cannot_write(invoke: Invoke) -> None:
    pytest.importorskip("matplotlib")
    result = invoke("report", "checkpoint", "-o", f"{'long' * 100}.html")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("Error: cannot write 'longlong")


@pytest.mark.usefixtures("recorded")
def test_report_says_how_to_install_what_it_needs() -> None:
    code = "import sys; sys.modules['matplotlib'] = None; from beamlike.cli.main import main; main(['report', '.'])"
    path = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=path, capture_output=True, text=True, check=False)
    assert done.stderr == "Error: reports and charts need matplotlib: pip install 'beamlike[report]'\n"
    assert done.returncode == 1
    assert not Path("report.html").exists()


@pytest.mark.parametrize("command", ["why", "watch", "report"])
@pytest.mark.usefixtures("recorded")
def test_where_there_is_no_run_the_nearest_is_named(invoke: Invoke, command: str) -> None:
    result = invoke(command, "chekpoint")
    assert result.exit_code == 1
    assert "Error: there is no run 'chekpoint'; " in result.stderr
    assert "the nearest: 'checkpoint/beamlike/records.jsonl'" in result.stderr
    assert isinstance(result.exception, SystemExit)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--stage", "session"],
            "Error: there is no stage 'session'; the stages are sessions, average; did you mean",
        ),
        (["--window", "noon"], "Error: 'noon' is no time; write it as in ISO 8601"),
        (["--stage", "average", "--key", "7"], "Error: stage `average` has no keys"),
    ],
)
@pytest.mark.usefixtures("recorded")
def test_what_a_run_does_not_have_is_refused(invoke: Invoke, options: list[str], message: str) -> None:
    result = invoke("why", "checkpoint", *options)
    assert result.exit_code == 1
    assert message in result.stderr


def test_help_names_the_commands(invoke: Invoke) -> None:
    result = invoke("-h")
    assert result.exit_code == 0
    for command in ("explain", "report", "run", "watch", "why"):
        assert f"\n  {command} " in result.stdout


def test_the_command_line_does_not_need_spark_to_run_in_process() -> None:
    code = "import sys, beamlike.cli.main; print('pyspark' in sys.modules)"
    root = ROOT
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_parameters_of_the_function_are_set_by_their_annotations(invoke: Invoke) -> None:
    assert "hello" in invoke("explain", "mine:make", "--set", "name=hello").stdout
    result = invoke("run", "mine:make", "--set", "name=hello", "--records", "run.jsonl")
    assert (result.exit_code, "see hello-dead-letters" in result.stdout) == (0, True)
    assert why_of(invoke)[0].endswith("; the run has ended")


def why_of(invoke: Invoke) -> list[str]:
    return invoke("why", "run.jsonl").stdout.splitlines()


def test_what_cannot_be_set_is_a_usage_error(invoke: Invoke) -> None:
    for setting, message in {
        "nam=x": "make has no parameter 'nam'; it has name, times; did you mean 'name'?",
        "times": "'times': write --set KEY=VALUE",
    }.items():
        result = invoke("explain", "mine:make", "--set", setting)
        assert (result.exit_code, message in result.stderr) == (2, True)
    result = invoke("run", "mine:clicks", "--set", "name=x")
    assert "clicks is a pipeline and no function: it has nothing to set" in result.stderr
    result = invoke("run", "mine:clicks", "--runner", "spark", "--records", "run.jsonl")
    assert "SparkRunner: records= is for a checkpoint that is not on this machine" in result.stderr
    result = invoke("run", "mine:clicks", "--runner", "spark", "--run-id", "1")
    assert "--run-id: for --runner local only" in result.stderr
    result = invoke("run", "mine:clicks", "--run-id", "@1")
    assert (result.exit_code, "'@1' cannot name a run" in result.stderr) == (2, True)


def test_a_run_ends_with_its_sinks_their_rows_and_places(invoke: Invoke, tmp_path: Path) -> None:
    shown = " ".join(invoke("run", "mine:clicks").stdout.split())
    assert shown.index("Written") > shown.index("Watermarks")
    written = shown[shown.index("Written") :]
    assert "│ out │ 2 │" in written
    assert str(tmp_path / "out").replace(" ", "")[-12:] in written.replace(" ", "").replace("│", "")


def test_help_has_groups_and_the_commands_for_a_beginning_first() -> None:
    shown = CliRunner().invoke(main, ["--help"]).stdout
    titles = [line.removesuffix(":") for line in shown.splitlines() if line.endswith(":") and line[0] != " "]
    assert titles == ["Options", "First", "Begin", "Observe", "Change a run", "Play again"]
    first = shown[shown.index("First:") : shown.index("Begin:")]
    assert [line.split()[0] for line in first.splitlines()[1:] if line.strip()] == [
        *("run", "check", "explain", "ui", "why"),
    ]
    assert sorted(main.commands) == sorted({name for names in main.sections.values() for name in names})


def test_commands_have_one_default_runner(invoke: Invoke) -> None:
    for runner in ([], ["--runner", "local"]):
        in_process = invoke("restore", "nowhere", "again", "mine:clicks", *runner)
        assert "there is no savepoint" in in_process.output
    refused = invoke("restore", "saved", "other", "mine:clicks", "--runner", "local", "--shards", "2")
    assert "shards= is for runner='spark'" in refused.output
