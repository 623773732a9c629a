"""Damaged files, and runs with a damaged checkpoint: either the panes are right, or an error names the damaged file."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import attrs

import beamlike as bl
from tests.support.swaps import Swap


@attrs.frozen
class Damage:
    """Damage to a file: it is "gone", "empty", "cut" at a byte, or one "bit" is flipped; `at` counts from 0."""

    file: str
    kind: str
    at: int = 0

    def do(self, folder: Path) -> None:
        """Damages the file in a folder."""
        path = folder / self.file
        content = bytearray(path.read_bytes())
        if self.kind == "gone":
            path.unlink()
            return
        if self.kind == "cut":
            del content[self.at :]
        elif self.kind == "empty":
            content.clear()
        else:
            content[self.at // 8] ^= 1 << self.at % 8
        path.write_bytes(content)


def damages(folder: Path, seed: int, of: Callable[[str], bool] = lambda name: True) -> Iterator[Damage]:
    """Yields random damages of files with these names, without end; most flip a bit."""
    chance = random.Random(seed)
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
    sizes = {str(path.relative_to(folder)): path.stat().st_size for path in files}
    sizes = {name: size for name, size in sizes.items() if of(name)}
    while True:
        name = chance.choice([*sizes])
        kind = chance.choice(["gone", "empty", "cut", "cut", *["bit"] * 6])
        yield Damage(name, kind, chance.randrange(sizes[name] * (8 if kind == "bit" else 1)))


def pipeline(folder: Path) -> bl.Pipeline:
    """Declares sessions of plays from files, with levels from a table; one row in each file is invalid."""
    p = bl.Pipeline("damaged", max_dead_letters=100)
    levels = p.read("levels", bl.CSV(folder / "levels.csv", {"user": str, "level": int}))
    source = bl.JSONLines(folder / "plays", {"user": str, "at": int}, max_files_per_trigger=1)
    watermark = bl.BoundedOutOfOrderness("10m")
    plays = p.read("plays", source, timestamp="at", timestamp_unit="s", watermark=watermark)
    rows = plays.with_columns(level=bl.lookup(levels, on="user")["level"])
    rows.write("all", bl.JSONLines(folder / "all"))
    sessions = rows.window_into(bl.Sessions("1m")).group_by("user", name="by user")
    sessions.aggregate(n=bl.count(), level=bl.max("level")).write(
        "sessions", bl.JSONLines(folder / "sessions")
    )
    return p


def write(folder: Path, number: int) -> None:
    """Writes the plays of one file, a second apart; each user plays in each file."""
    (folder / "plays").mkdir(parents=True, exist_ok=True)
    (folder / "levels.csv").write_text(
        "user,level\n" + "".join(f"u{user},{user * 1_001}\n" for user in range(7))
    )
    rows = [json.dumps({"user": f"u{at % 7}", "at": at}) for at in range(number * 40, number * 40 + 40)]
    (folder / "plays" / f"{number}.jsonl").write_text("\n".join([*rows, "{", ""]))


def panes(folder: Path) -> list[str]:
    """Returns the rows of both sinks, sorted."""
    files = [path for name in ("all", "sessions") for path in (folder / name).glob("*.jsonl")]
    return sorted(line for path in files for line in path.read_text().splitlines())


@attrs.frozen
class Damaged:
    """A stopped run, kept in `folder / "kept"`, that goes on in `folder / "run"` once a file is damaged.

    `go_on` receives `folder / "run"` and runs the pipeline to its end.
    """

    folder: Path
    go_on: Callable[[Path], object]
    part: str
    """The folder in it of which a file is damaged: a checkpoint or a savepoint."""

    def anew(self) -> Path:
        """Restores the folder of the run as it was kept, and returns it."""
        run = self.folder / "run"
        shutil.rmtree(run, ignore_errors=True)
        return Path(shutil.copytree(self.folder / "kept", run, symlinks=True))

    def expected(self) -> list[str]:
        """Returns the rows of a run that goes on undamaged."""
        run = self.anew()
        self.go_on(run)
        return panes(run)

    def after(self, damage: Damage | Swap, expected: list[str]) -> str:
        """Runs on after the damage.

        Returns "right", "named" for a `CheckpointError` that has the file's path, or else a description of the failure.
        """
        run = self.anew()
        damage.do(run / self.part)
        try:
            self.go_on(run)
        except bl.CheckpointError as error:
            return "named" if str(run / self.part) in str(error) else f"not named: {error}"
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        found = panes(run)
        return "right" if found == expected else f"other rows: {len(found)} for {len(expected)}"


def tried(damaged: Damaged, seed: int, count: int) -> Counter[str]:
    """Counts the outcomes of `count` damages; fails if an outcome is neither "right" nor "named"."""
    expected = damaged.expected()
    files = damages(damaged.folder / "kept" / damaged.part, seed, lambda name: "dead-letters" not in name)
    found = [(damage, damaged.after(damage, expected)) for damage in islice(files, count)]
    assert [(damage, came) for damage, came in found if came not in ("right", "named")] == []
    return Counter(came for _, came in found)


def go_on(folder: Path, **options: Any) -> None:
    """Runs the pipeline to the end of its input, in process."""
    pipeline(folder).run(bl.LocalRunner(checkpoint=folder / "checkpoint", **options))
