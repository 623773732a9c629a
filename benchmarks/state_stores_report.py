"""The tables of the two stores of state on Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from benchmarks import readme
from benchmarks.kept import Figures
from benchmarks.section import Section

OF_CASE: Final = ("part", "operator", "keys", "rows", "shards")
_METHODS: Final = ("PUT", "GET", "HEAD", "DELETE", "POST")

Pair = Mapping[str, Figures]


def _pairs(figures: Sequence[Figures], *parts: str) -> list[tuple[tuple[Any, ...], Pair]]:
    """Returns the cases of these parts that have figures of both stores."""
    found: dict[tuple[Any, ...], dict[str, Figures]] = {}
    for figure in figures:
        if figure["part"] in parts:
            case = tuple(figure[name] for name in OF_CASE)
            found.setdefault(case, {})[figure["store"]] = figure
    return [(case, pair) for case, pair in found.items() if len(pair) == 2]


def lines(figures: Sequence[Figures]) -> Iterator[str]:
    """Yields the tables of all parts."""
    yield from _rows(_pairs(figures, "rows"))
    yield from _of_s3(_pairs(figures, "s3", "cluster s3"))
    yield from _of_cluster(_pairs(figures, "cluster", "cluster s3"))
    yield from _long(_pairs(figures, "long"))


def _ratio(pair: Pair, name: str = "cpu") -> str:
    return f"{pair['files'][name] / pair['spark'][name]:.2f}"


def _both(pair: Pair, name: str, form: str = ",.0f") -> list[str]:
    return [format(pair[store][name], form) for store in ("files", "spark")]


def _rows(pairs: Sequence[tuple[tuple[Any, ...], Pair]]) -> Iterator[str]:
    names = ("state", "keys:", "live rows", "shards", "CPU ms: files", "Spark", "ratio", "ms: files", "Spark")
    names += ("written, kB: files", "Spark", "state, MB: files", "Spark")
    rows = []
    for (_, operator, keys, count, shards), pair in sorted(pairs, key=lambda each: _order(each[0])):
        cells = [*_both(pair, "cpu"), _ratio(pair), *_both(pair, "wall"), *_both(pair, "written")]
        rows.append((operator, keys, f"{count:,}", str(shards), *cells, *_both(pair, "state MB", ",.1f")))
    yield from readme.table(names, rows)
    yield ""


def _order(case: tuple[Any, ...]) -> tuple[Any, ...]:
    _, operator, keys, count, shards = case
    return operator, count, keys != "random", shards


def _of_s3(pairs: Sequence[tuple[tuple[Any, ...], Pair]]) -> Iterator[str]:
    if not pairs:
        return
    yield "Requests of a batch, with the checkpoint on the S3 endpoint:"
    yield ""
    names = ("executors", "shards", "store:", "requests", *_METHODS, "ms", "CPU ms")
    rows = []
    for (*_, shards), pair in pairs:
        for store in ("files", "spark"):
            figure = pair[store]
            made = figure["requests"]
            counts = [f"{made.get(method, 0):.1f}" for method in _METHODS]
            executors = "2" if figure["cluster"] else "local"
            cells = [f"{sum(made.values()):.1f}", *counts, f"{figure['wall']:,.0f}", f"{figure['cpu']:,.0f}"]
            rows.append((executors, str(shards), store, *cells))
    yield from readme.table(names, rows)
    yield ""


def _of_cluster(pairs: Sequence[tuple[tuple[Any, ...], Pair]]) -> Iterator[str]:
    if not pairs:
        return
    yield "Two executors, and no task waits for the one that had its state:"
    yield ""
    names = ("checkpoint", "shards", "tasks that moved: files", "Spark", "CPU ms: files", "Spark", "ratio")
    rows = []
    for (part, *_, shards), pair in pairs:
        where = "S3" if part.endswith("s3") else "disk"
        rows.append((where, str(shards), *_both(pair, "moved", ".0%"), *_both(pair, "cpu"), _ratio(pair)))
    yield from readme.table(
        (*names, "ms: files", "Spark"),
        [(*row, *_both(pair, "wall")) for row, (_, pair) in zip(rows, pairs, strict=True)],
    )
    yield ""


_LOOKS: Final = (
    "CPU ms",
    "state files",
    "state MB",
    "files",
    "MB",
    "driver MB",
    "Java MB",
    "workers MB",
    "open files",
)


def _long(pairs: Sequence[tuple[tuple[Any, ...], Pair]]) -> Iterator[str]:
    for (*_, rows, _), pair in pairs:
        batches, arrivals = (pair["files"][name] for name in ("batches", "arrivals"))
        yield f"A run of {batches:,} batches of {arrivals} rows, with {rows:,} live rows:"
        yield ""
        cells = []
        for store in ("files", "spark"):
            looks = pair[store]["looks"]
            for share in (0.1, 0.5, 1.0):
                look = min(looks, key=lambda look: abs(look["batches"] - share * batches))
                cells.append((store, f"{look['batches']:,}", *(f"{look[name]:,.1f}" for name in _LOOKS)))
        yield from readme.table(("store", "batches", *_LOOKS), cells)
        yield ""


SECTION: Final = Section("state_stores", (*OF_CASE, "store"), lines)
