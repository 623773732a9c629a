"""Temporary and lock files are in a folder of the user alone, and links in their place are not followed."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

import beamlike as bl
from beamlike.spark.session import scratch
from beamlike.system.locks import Lock, left_by_killed
from beamlike.system.own_folder import own_folder

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has a temporary folder for each user")


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary folder in which others can write, and a file of the user beside it."""
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious/file").write_text("my thesis")
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return tmp_path / "tmp"


PLACES: list[Callable[[], object]] = [
    lambda: bl.KafkaSink("127.0.0.1:9", "topic", transactions=True).hold("run"),
    scratch.temporary_checkpoint,
    scratch.scratch.__wrapped__,
    own_folder,
]


def _given_away(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only the administrator can give folders away")
    path.mkdir(mode=0o700)
    os.chown(path, 12_345, 12_345)


ATTACKS: dict[str, Callable[[Path], object]] = {
    "a link to a folder": lambda path: path.symlink_to("../precious"),
    "a link to a file": lambda path: path.symlink_to("../precious/file"),
    "a dangling link": lambda path: path.symlink_to("nowhere"),
    "a file": lambda path: path.touch(),
    "a pipe": os.mkfifo,
    "a folder for all": lambda path: (path.mkdir(), path.chmod(0o777)),
    "a folder for the group": lambda path: (path.mkdir(), path.chmod(0o770)),
    "a folder that others can list": lambda path: (path.mkdir(), path.chmod(0o755)),
    "a folder of another user": _given_away,
}


@pytest.mark.parametrize("use", PLACES)
@pytest.mark.parametrize("attack", ATTACKS)
def test_what_another_user_has_made_there_is_refused(
    attack: str, use: Callable[[], object], temporary: Path
) -> None:
    ATTACKS[attack](temporary / f"beamlike-{os.getuid()}")
    with pytest.raises(PermissionError, match="no folder of this user alone"):
        use()
    assert os.listdir(temporary.parent / "precious") == ["file"]
    assert (temporary.parent / "precious/file").read_text() == "my thesis"


@pytest.mark.parametrize("use", PLACES)
def test_all_is_in_a_folder_that_no_other_user_can_enter(use: Callable[[], object], temporary: Path) -> None:
    made = use()
    assert os.listdir(temporary) == [f"beamlike-{os.getuid()}"]
    assert stat.S_IMODE((temporary / f"beamlike-{os.getuid()}").stat().st_mode) == 0o700
    if isinstance(made, Lock):
        made.release()


@pytest.mark.parametrize("target", ["precious/file", "precious", "nowhere", "tmp/lock"])
def test_a_lock_does_not_follow_a_link(target: str, temporary: Path) -> None:
    (temporary / "lock").symlink_to(temporary.parent / target)
    with pytest.raises(OSError, match=r"lock"):
        Lock.take(str(temporary / "lock"), "a test")
    assert [*left_by_killed(f"{temporary}/*")] == []
    assert (temporary.parent / "precious/file").read_text() == "my thesis"
    assert not (temporary.parent / "nowhere").exists()
