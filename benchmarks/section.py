"""Sections of the page of figures: each has a file of figures and the table that shows them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import attrs
import click

from benchmarks import kept, readme
from benchmarks.kept import Figures

HERE: Final = Path(__file__).parent

resume = click.option("--resume", is_flag=True, help="Leave out what is measured of this commit.")
"""The option of the benchmarks whose figures are kept one by one."""

Wanted = TypeVar("Wanted")


@attrs.frozen
class Section:
    """A table between the markers `name` of a page, and the file of its figures.

    Args:
        name: The markers in the page, and the file unless `path` is given.
        key: The fields by which a figure replaces an earlier one.
        lines: The lines of Markdown for all figures of the file.
        path: The file.
        page: The page.
    """

    name: str
    key: tuple[str, ...]
    lines: Callable[[Sequence[Figures]], Iterable[str]]
    path: Path = attrs.field(default=attrs.Factory(lambda self: HERE / f"{self.name}.json", takes_self=True))
    page: Path = readme.README

    @property
    def figures(self) -> list[Figures]:
        """All kept figures."""
        return kept.load(self.path)

    def left(self, wanted: Iterable[tuple[Any, ...]], commit: str | None) -> list[tuple[Any, ...]]:
        """Returns the keys that are not measured of this commit, or failed.

        The code of a commit that ends with "+" may have changed since, so its figures do not count.
        """
        of_commit = self.measured_of(commit)
        known = {tuple(each[part] for part in self.key) for each in of_commit if not each.get("failed")}
        return [each for each in wanted if each not in known]

    def measured_of(self, commit: str | None) -> list[Figures]:
        """Returns the figures of this commit."""
        if commit is None or commit.endswith("+"):
            return []
        return [each for each in self.figures if each["machine"]["commit"] == commit]

    def keep(self, measured: Iterable[Figures], about: Figures, *, whole: bool = False) -> None:
        """Stores figures. `whole`: they replace all others, not only those with the same key."""
        if whole:
            self.path.unlink(missing_ok=True)
        kept.keep(self.path, measured, self.key, about)

    def text(self) -> list[str]:
        """Returns the lines for the page, with the machine, the commits and dates at their end."""
        figures = self.figures
        return [*self.lines(figures), "", readme.about(figures)] if figures else ["Not measured yet."]

    def show(self) -> None:
        """Writes the lines into the page."""
        readme.put(self.name, self.text(), self.page)
