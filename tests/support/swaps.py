"""Files in the places of others: either the panes are right, or an error names the place."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

import attrs


@attrs.frozen
class Swap:
    """A copy of one file of a folder in the place of another one. Hadoop's checksums are copied, too."""

    of: str
    file: str

    def do(self, folder: Path) -> None:
        """Copies the file within a folder."""
        shutil.copyfile(folder / self.of, folder / self.file)
        of, sums = (Path(folder, name).with_name(f".{Path(name).name}.crc") for name in (self.of, self.file))
        sums.unlink(missing_ok=True)
        if of.exists():
            shutil.copyfile(of, sums)


def swaps(folder: Path) -> Iterator[Swap]:
    """Yields all copies of a file of a checkpoint or savepoint in the place of another one."""
    names = [str(path.relative_to(folder)) for path in folder.rglob("[!.]*") if path.is_file()]
    left_out = ("lock", "dead-letters", ".keys")
    yield from (
        Swap(*pair) for pair in permutations(sorted(n for n in names if not any(x in n for x in left_out)), 2)
    )
