"""Files that change after a run has listed them, and files that are still being copied."""

from __future__ import annotations

import html
import os
import re
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

import beamlike as bl
from beamlike.io.files.changes import Changes, Stamp
from beamlike.io.files.paths import list_files
from beamlike.io.sources import FoundFile
from beamlike.observe.report import report
from beamlike.observe.waiting.explain import why
from beamlike.observe.watch import frame
from beamlike.records.history import History

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def put(file: Path, *users: str, second: int = 0) -> None:
    """Writes a file with this modification time."""
    file.parent.mkdir(exist_ok=True, parents=True)
    file.write_text("user\n" + "".join(f"{user}\n" for user in users))
    os.utime(file, (1_000 + second, 1_000 + second))


def run(folder: Path, runner: type[Any], out: list[str], **choices: Any) -> Any:
    p = bl.Pipeline("p")
    source = bl.CSV(folder / "in", schema={"user": str}, **choices)
    p.read("plays", source).write("out", bl.Callback(lambda frame, batch: out.extend(frame["user"])))
    return p.run(runner(checkpoint=str(folder / "checkpoint"), trigger="available_now"))


def go_on_after_changes(folder: Path, runner: type[Any], caplog: pytest.LogCaptureFixture) -> None:
    out: list[str] = []
    put(folder / "in" / "a", "ada")
    put(folder / "in" / "b", "bob")
    for _ in range(2):
        run(folder, runner, out)
    assert "was changed" not in caplog.text
    put(folder / "in" / "a", "ada", "eve", second=1)
    put(folder / "in" / "c", "cid")
    with pytest.raises(bl.errors.SourceError, match="in/a' was changed after it was listed"):
        run(folder, runner, out, on_change="error")
    how = "9 bytes of 1970-01-01 00:16:40.000, now 13 bytes of 1970-01-01 00:16:41.000"
    unread = (
        f"source `plays` does not read what was written to file '{folder}/in/a' after it was listed ({how})"
    )
    ended = run(folder, runner, out)
    assert f"in/a' was changed after it was listed ({how})" in caplog.text
    assert out == ["ada", "bob", "cid"]
    assert ended.batches[-1].sources["plays"].changed == {f"{folder}/in/a": how}
    assert unread in repr(ended)
    history = History.open(folder / "checkpoint")
    assert not history.changed
    check_shown(history, unread)
    put(folder / "in" / "b", "bob", "fay", second=1)
    without_input = run(folder, runner, out)
    assert not without_input.batches  # a file that changed is no input of a batch
    assert "source `plays` does not read what was written to file" in repr(without_input)
    history = History.open(folder / "checkpoint")
    assert sorted(history.changed["plays"]) == [f"{folder}/in/a", f"{folder}/in/b"]
    check_shown(history, f"{unread.partition(' after')[0]} (and 1 more) after it was listed ({how})")


def check_shown(history: History, sentence: str) -> None:
    """Checks that the sentence is in `why`, in `watch` and in the report."""
    assert why(history)[-1] == sentence
    console = Console(width=1_000, file=StringIO())
    console.print(frame(history))
    assert sentence in console.file.getvalue()  # type: ignore[attr-defined]
    assert sentence.replace("`", "").removeprefix("source") in html.unescape(
        re.sub("<[^>]*>", "", report(history))
    )


def test_a_file_that_grew_is_told_or_fails_the_run_in_process(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    go_on_after_changes(tmp_path, bl.LocalRunner, caplog)


@pytest.mark.slow
@pytest.mark.spark
def test_a_file_that_grew_is_told_or_fails_the_run_on_spark(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    go_on_after_changes(tmp_path, bl.SparkRunner, caplog)


def test_each_change_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    changes = Changes("ignore", {"a": Stamp(1, 2), "b": Stamp(1, 2)})
    for modified, size in (1, 2), (2, 2), (2, 2), (2, 3), (2, 3):
        changes.look([FoundFile("a", modified, size), FoundFile("b", 1, 2), FoundFile("new", modified, size)])
    assert [record.message.split(" was changed")[0] for record in caplog.records] == ["file 'a'", "file 'a'"]


def test_what_was_listed_before_stamps_were_kept_is_compared_from_the_next_listing_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    changes = Changes.of(bl.CSV("in"), {"a": None})
    changes.look([FoundFile("a", 1, 2)])
    assert not caplog.records
    changes.look([FoundFile("a", 1, 3)])
    assert "'a' was changed" in caplog.text


@pytest.mark.parametrize("given", [True, "fail", None])
def test_another_word_is_refused(given: Any) -> None:
    with pytest.raises(ValueError, match=r"CSV: on_change must be 'ignore' .* or 'error', not"):
        bl.CSV("in", on_change=given)


def test_names_of_files_that_are_still_copied_are_left_out(tmp_path: Path) -> None:
    for name in "a.csv", "b.csv._COPYING_", "c.csv.tmp", "_d", ".e", "k=f.tmp/g.csv":
        put(tmp_path / name, "ada")
    for path in str(tmp_path), f"{tmp_path}/*", f"{tmp_path}/**":
        assert sorted(os.path.basename(file.path) for file in list_files(path)) == ["a.csv", "g.csv"]
    assert [file.path for file in list_files(f"{tmp_path}/c.csv.tmp")] == [f"{tmp_path}/c.csv.tmp"]
