"""Sources whose path does not exist: an error at the start names the step, the part that exists, and similar names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import beamlike as bl
from beamlike.errors import MissingFiles

LINE = '{"user": "ada", "at": 1}\n'

# (path, what the error says after the step)
MISSING = [
    (
        "data/playz",
        "there is no file or directory 'data/playz': '{}/data' has no 'playz'; did you mean 'plays'?",
    ),
    ("data/plays/b.jsonl", "'data/plays/b.jsonl': '{}/data/plays' has no 'b.jsonl'; did you mean 'a.jsonl'?"),
    ("elsewhere/deep/er", "there is no file or directory 'elsewhere/deep/er': '{}' has no 'elsewhere'"),
]
UNMATCHED = [
    ("data/plays/*.json", "matches 'data/plays/*.json': '{}/data/plays' has no '*.json'; did you mean 'a.jsonl'?"),
    ("data/playz/*", "nothing matches 'data/playz/*': '{}/data' has no 'playz'; did you mean 'plays'?"),
    ("data/p*/b/*", "nothing matches 'data/p*/b/*': '{}/data/p*' has no 'b'"),
    ("data/plays/*", None),
    ("data/plays/_*", "nothing matches 'data/plays/_*'"),
]  # fmt: skip


@pytest.fixture(autouse=True)
def _some_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("data/plays", "data/empty"):
        Path(folder).mkdir(parents=True)
    Path("data/plays/a.jsonl").write_text(LINE)
    Path("data/plays/_hidden").touch()
    for folder in ("data/odd[1]", "data/_raw"):
        Path(folder).mkdir()
        Path(folder, "a.jsonl").write_text(LINE)


@pytest.fixture(params=["local", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.slow])])
def runner(request: pytest.FixtureRequest) -> Any:
    if request.param == "local":
        return bl.LocalRunner()
    return bl.SparkRunner(session=request.getfixturevalue("spark"), shards=1)


def copy(path: str, sink: bl.Memory) -> bl.Pipeline:
    p = bl.Pipeline("p")
    source = bl.JSONLines(path, schema={"user": str, "at": int})
    rows = p.read("clicks", source, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
    rows.write("out", sink)
    return p


def users(path: str, runner: Any) -> list[str]:
    sink = bl.Memory()
    copy(path, sink).run(runner)
    return [row["user"] for row in sink.rows()]


@pytest.mark.parametrize(("path", "why"), MISSING + UNMATCHED)
def test_a_path_that_names_nothing_is_an_error_that_says_how_far_it_leads(
    path: str, why: str | None, runner: Any
) -> None:
    if why is None:
        assert users(path, runner) == ["ada"]
        return
    with pytest.raises(MissingFiles) as caught:
        users(path, runner)
    assert caught.value.step == "clicks"
    assert isinstance(caught.value, FileNotFoundError)
    assert str(caught.value).startswith("step 'clicks': ")
    assert why.format(Path.cwd()) in str(caught.value)


@pytest.mark.parametrize(
    "runner", ["local", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.slow])], indirect=True
)
def test_an_empty_folder_has_no_rows_and_one_with_an_odd_name_is_read(runner: Any) -> None:
    assert users("data/empty", runner) == []
    assert users("data/empt*", runner) == []
    for odd in ("data/odd[1]", "data/_raw"):
        assert users(odd, runner) == ["ada"]


def test_a_declaration_that_looks_for_columns_names_the_step() -> None:
    with pytest.raises(
        MissingFiles, match=r"^step 'clicks': .*'playz'; did you mean 'plays'\? \(if .*schema="
    ):
        bl.Pipeline("p").read("clicks", bl.CSV("data/playz"))


@pytest.mark.parametrize("path", ["link", "data/plays/a.jsonl/"])
def test_what_is_there_under_the_name_is_not_said_to_be_missing(path: str) -> None:
    Path("link").symlink_to("nowhere")
    with pytest.raises(MissingFiles, match=f"there is no file or directory '{path}'$"):
        users(path, bl.LocalRunner())


@pytest.mark.slow
@pytest.mark.spark
def test_what_a_glob_matches_may_come_later_or_be_gone(spark: Any) -> None:
    with pytest.raises(MissingFiles):
        users("data/new/*.jsonl", bl.SparkRunner("checkpoint", session=spark, shards=1))
    Path("data/new").mkdir()
    for n in range(2):
        file = Path(f"data/new/{n}.jsonl")
        file.write_text(LINE)
        assert users("data/new/*.jsonl", bl.SparkRunner("checkpoint", session=spark, shards=1)) == ["ada"]
        file.unlink()
        assert users("data/new/*.jsonl", bl.SparkRunner("checkpoint", session=spark, shards=1)) == []
    Path("data/new").rmdir()
    assert users("data/new/*.jsonl", bl.SparkRunner("checkpoint", session=spark, shards=1)) == []


@pytest.mark.spark
def test_with_an_interval_a_glob_waits_and_a_missing_folder_is_an_error(spark: Any) -> None:
    runner = bl.SparkRunner(session=spark, shards=1, trigger="1 second")
    runner.start(copy("data/later*", bl.Memory()).plan()).stop()
    plan = copy("data/later", bl.Memory()).plan()
    with pytest.raises(MissingFiles):
        runner.start(plan)


def test_who_waits_for_files_in_a_folder_that_is_not_there_is_told(caplog: pytest.LogCaptureFixture) -> None:
    for path in ("data/later*", "data/playz/*.jsonl"):
        bl.JSONLines(path, schema={"at": int}).require_there(globs=False)
    (told,) = caplog.messages
    assert told.startswith("files may come later, but now nothing matches 'data/playz/*.jsonl': ")
    assert told.endswith("has no 'playz'; did you mean 'plays'?")


def test_a_list_of_paths_is_read_as_one_source_each_file_once(runner: Any) -> None:
    for name, at in (("data/odd, x/{b}.jsonl", 3), ("data/more/c.jsonl", 2)):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(LINE.replace("1", str(at)))
    p, out = bl.Pipeline("p"), bl.Memory()
    paths = ["data/plays", Path("data/odd, x"), "data/mo*", "data/plays/a.jsonl", "data/odd[1]"]
    source = bl.JSONLines(paths, schema={"user": str, "at": int})
    read = p.read("plays", source, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
    read.write("out", out)
    p.run(runner)
    assert sorted(row["at"] for row in out.rows()) == [1, 1, 2, 3]

    missing = bl.JSONLines(["data/plays", "data/playz"], schema={"user": str, "at": int})
    q = bl.Pipeline("q")
    q.read("plays", missing, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps()).write(
        "out", bl.Memory()
    )
    with pytest.raises(MissingFiles, match="there is no file or directory 'data/playz'"):
        q.run(runner)


def test_a_sink_has_one_path_and_no_list_is_empty() -> None:
    read = bl.Pipeline("p").read(
        "plays", bl.JSONLines(["data/plays", "data/empty"], schema={"at": int}), timestamp="at", timestamp_unit="s",
        watermark=bl.MonotonousTimestamps(),
    )  # fmt: skip
    with pytest.raises(bl.PlanError, match="step 'out': writes to one directory, not to several paths"):
        read.write("out", bl.CSV(["a", "b"]))
    read.write("out", bl.CSV("data/empty/out"))
    with pytest.raises(bl.PlanError, match="reads 'data/empty', and 'out' writes to 'data/empty/out'"):
        read.pipeline.plan()
    with pytest.raises(ValueError, match="a list of paths must not be empty"):
        bl.CSV([])
