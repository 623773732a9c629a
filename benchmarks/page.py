"""All tables of figures, as the files of figures have them.

python -m benchmarks.page       # writes all tables anew, without measuring
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from benchmarks import (
    aggregates,
    changes,
    checkpoint,
    combine,
    cores,
    firing,
    flagship,
    joins,
    process,
    readme,
    scale,
    sides,
    state,
    state_stores_report,
    throughput_report,
)
from benchmarks.latency import report as latency
from benchmarks.latency import timeline
from benchmarks.nexmark import measure as nexmark
from benchmarks.section import Section

SECTIONS: Final[tuple[Section, ...]] = (
    throughput_report.SECTION,
    throughput_report.SECTION_OF_FRONT,
    flagship.SECTION,
    state.SECTION,
    state.FRONT,
    state_stores_report.SECTION,
    latency.SECTION,
    timeline.SECTION,
    nexmark.SECTION,
    nexmark.IN_SHORT,
    process.SECTION,
    joins.SECTION,
    changes.SECTION,
    aggregates.SECTION,
    combine.SECTION,
    firing.SECTION,
    sides.SECTION,
    checkpoint.SECTION,
    cores.SECTION,
    scale.SECTION,
)


def contents() -> Iterator[str]:
    """Describes the measurements, with their commits and dates."""
    files = {section.path: section for section in reversed(SECTIONS)}
    rows = []
    for section in reversed(files.values()):
        figures = section.figures
        rows.append(
            (section.name, f"{len(figures):,}", "; ".join(readme.commits(figures)) or "not measured yet")
        )
    return readme.table(("figures", "how many", "measured:"), rows)


def show() -> None:
    """Writes all tables into their pages."""
    for section in SECTIONS:
        section.show()
    readme.put("contents", contents())


if __name__ == "__main__":
    show()
