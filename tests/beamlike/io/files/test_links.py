"""Folders with links: each file is found once, also where links lead around in circles."""

from __future__ import annotations

import glob
import os
import tempfile
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import beamlike as bl
from beamlike.io import Part
from beamlike.io.files.order import FoundFile
from beamlike.io.files.paths import list_files
from tests.beamlike.io.test_sources import put, sorted_out


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two files, and three links that lead back to their folder."""
    put(tmp_path / "in/a.csv", "n\n1\n", at=1)
    put(tmp_path / "in/sub/b.csv", "n\n2\n", at=2)
    (tmp_path / "in/self").symlink_to(".")
    (tmp_path / "in/sub/up").symlink_to("..")
    (tmp_path / "in/sub/further").symlink_to(tmp_path)
    return tmp_path / "in"


@pytest.mark.parametrize("pattern", ["", "*", "**", "**/*.csv", "*/**/*.csv", "**/b.csv"])
def test_links_that_lead_back_are_passed_over(pattern: str, folder: Path) -> None:
    rows, letters = sorted_out(bl.CSV(folder / pattern, schema={"n": int}))
    assert rows == {"*/**/*.csv": [(2,)], "**/b.csv": [(2,)]}.get(pattern, [(1,), (2,)])
    assert letters == []


def test_links_to_one_another_come_to_an_end(tmp_path: Path) -> None:
    for one, other in ("ab", "ba"):
        put(tmp_path / one / f"{one}.csv", "n\n1\n")
        (tmp_path / one / "other").symlink_to(f"../{other}")
    for pattern in ("", "**/*.csv"):
        found = sorted(os.path.relpath(file.path, tmp_path) for file in list_files(str(tmp_path / pattern)))
        assert found == ["a/a.csv", "a/other/b.csv", "b/b.csv", "b/other/a.csv"]


@pytest.mark.parametrize("kept", ["in/_kept", "kept"])
def test_a_link_to_another_folder_of_the_source_is_followed_under_each_name(
    kept: str, tmp_path: Path
) -> None:
    put(tmp_path / kept / "a.csv", "n\n1\n")
    put(tmp_path / "kept/b.csv", "n\n2\n")
    for day in ("1", "2"):
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / f"in/day={day}").symlink_to(tmp_path / kept)
    source = bl.CSV([tmp_path / "in", tmp_path / "kept/b.csv", tmp_path / kept], {"day": int, "n": int})
    assert {(1, 1), (2, 1)} <= set(sorted_out(source)[0])


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A folder `in` with a file, and beside it a folder `shared`, to whose file links in `in` lead."""
    put(tmp_path / "in/b.csv", "n\n9\n", at=1)
    put(tmp_path / "shared/a.csv", "n\n1\n2\n", at=2)
    return tmp_path


@pytest.mark.parametrize("link", ["l.csv", "folder", "deep/l.csv"])
@pytest.mark.parametrize("named", ["shared", "shared/a.csv", "shared/*.csv", "other"])
def test_a_link_and_its_target_that_is_named_as_advised_are_read_once(
    named: str, link: str, shared: Path
) -> None:
    if (named, link) == ("shared/a.csv", "folder"):
        return  # a single file does not allow a link to its folder
    (shared / "other").symlink_to("shared")
    (shared / "in" / link).parent.mkdir(exist_ok=True)
    (shared / "in" / link).symlink_to(shared / ("shared" if link == "folder" else "shared/a.csv"))
    alone = bl.CSV(shared / "in", schema={"n": int})
    assert "name that in path=, too" in sorted_out(alone)[1][0][0]
    for paths in ([shared / "in", shared / named], [shared / named, shared / "in"]):
        assert sorted_out(bl.CSV(paths, schema={"n": int})) == ([(9,), (1,), (2,)], [])


def test_a_link_beside_its_target_adds_no_rows_also_if_it_comes_later(
    shared: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    for root in (shared, shared / "*", shared / "**"):
        out = bl.Memory()
        p, checkpoint = bl.Pipeline("p"), tmp_path_factory.mktemp("checkpoint")
        p.read("r", bl.CSV(root, schema={"n": int})).write("o", out)
        for again in (False, True):
            p.run(bl.LocalRunner(checkpoint=checkpoint, quiet=True))
            assert sorted(out.frame()["n"]) == [1, 2, 9]
            if not again:
                (shared / "in/latest.csv").symlink_to("b.csv")
                (shared / "in/copies").symlink_to("../shared")
        (shared / "in/latest.csv").unlink()
        (shared / "in/copies").unlink()


def test_links_to_a_file_that_has_no_own_name_in_the_source_are_read_each(shared: Path) -> None:
    (shared / "shared").rename(shared / "in/_kept")
    for name in ("x.csv", "y.csv"):
        (shared / "in" / name).symlink_to("_kept/a.csv")
    assert sorted(sorted_out(bl.CSV(shared / "in"))[0]) == [(1,), (1,), (2,), (2,), (9,)]


def test_a_link_in_another_hive_folder_counts_if_its_column_is_read(shared: Path) -> None:
    (shared / "in/day=1").symlink_to("../shared")
    source = bl.CSV([shared / "in", shared / "shared"], {"n": int, "day": int})
    assert sorted_out(source)[0] == [(9, None), (1, 1), (2, 1), (1, None), (2, None)]
    assert sorted_out(bl.CSV(source.paths, {"n": int}))[0] == [(9,), (1,), (2,)]


def test_a_sink_passes_over_links_that_lead_back(tmp_path: Path) -> None:
    sink = bl.CSV(tmp_path, partition_by=["d"])
    frame = pl.DataFrame({"d": [1], "n": [1]})
    sink.write(frame, Part("q", 0))
    (tmp_path / "d=1" / "up=1").symlink_to("..")
    (tmp_path / "d=1" / "self=1").symlink_to(".")
    sink.start("q")
    assert sorted(os.listdir(tmp_path / "d=1")) == ["self=1", "up=1"]
    assert os.listdir(tmp_path) == ["d=1"]


_PIECE = st.sampled_from(["a", "b", "*", "**", "?", "[ab]", "a*"])


@settings(max_examples=3 * settings().max_examples)
@given(
    st.lists(st.lists(st.sampled_from("ab"), min_size=1, max_size=4).map("/".join), min_size=1, max_size=5),
    st.lists(_PIECE, min_size=1, max_size=4).map("/".join).filter(glob.has_magic),
)
def test_without_links_a_glob_is_as_in_python(files: list[str], pattern: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for file in files:
            put(Path(f"{folder}/{file}.csv"), "")
        expected = set()
        for match in filter(os.path.exists, glob.glob(f"{folder}/{pattern}", recursive=True)):
            below = Path(match).rglob("*.csv") if os.path.isdir(match) else [Path(match)]
            expected |= set(map(os.path.abspath, below))
        found = {os.path.abspath(file.path) for file in _listed(f"{folder}/{pattern}")}
    assert found == expected


def _listed(path: str) -> list[FoundFile]:
    try:
        return list_files(path)
    except FileNotFoundError:
        return []
