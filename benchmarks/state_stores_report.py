"""The tables of the two stores of state on Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from benchmarks import readme
from benchmarks.kept import Figures
from benchmarks.section import Section

OF_CASE: Final = ("part", "operator", "keys", "rows", "shards")
_STORES: Final = ("files", "spark")
_METHODS: Final = ("PUT", "GET", "HEAD", "LIST", "DELETE", "POST")
_LOOKS: Final = (
    *("CPU ms", "state files", "state MB", "files", "MB", "driver MB", "Java MB", "workers MB", "open files"),
)

Pair: TypeAlias = Mapping[str, Figures]
"""The figures of a case by store."""


def lines(figures: Sequence[Figures]) -> Iterator[str]:
    """Yields the tables of all parts."""
    there = {shown: pairs for parts, shown in _PARTS.items() if (pairs := _pairs(figures, parts))}
    for number, (shown, pairs) in enumerate(there.items()):
        yield from [""] * (number > 0)
        yield from shown(pairs)


def _pairs(figures: Sequence[Figures], parts: Sequence[str]) -> list[Pair]:
    """Returns the cases of these parts that have figures of both stores."""
    found: dict[tuple[object, ...], dict[str, Figures]] = {}
    for figure in figures:
        if figure["part"] in parts:
            case = tuple(figure[name] for name in OF_CASE)
            found.setdefault(case, {})[figure["store"]] = figure
    return sorted((pair for pair in found.values() if len(pair) == len(_STORES)), key=_order)


def _order(pair: Pair) -> tuple[object, ...]:
    of = pair["files"]
    return of["part"], of["operator"], of["rows"], of["keys"] != "random", of["shards"]


def _both(pair: Pair, name: str, form: str = ",.0f") -> list[str]:
    return [format(pair[store][name], form) for store in _STORES]


def _ratio(pair: Pair, name: str = "cpu") -> float:
    return float(pair["files"][name] / pair["spark"][name])


def _ratios(pairs: Sequence[Pair]) -> str:
    found = [f"{ratio:.2f}" for ratio in sorted(map(_ratio, pairs))]
    return f"- CPU with files by that with Spark's store: {' to '.join(dict.fromkeys([found[0], found[-1]]))}"


def _rows(pairs: Sequence[Pair]) -> Iterator[str]:
    names = ("state", "keys:", "live rows", "shards", "CPU ms: files", "Spark", "ratio", "ms: files", "Spark")
    names += ("written, kB: files", "Spark", "state, MB: files", "Spark")
    rows = []
    for pair in pairs:
        of = pair["files"]
        case = (of["operator"], of["keys"], f"{of['rows']:,}", str(of["shards"]))
        cells = [*_both(pair, "cpu"), f"{_ratio(pair):.2f}", *_both(pair, "wall"), *_both(pair, "written")]
        rows.append((*case, *cells, *_both(pair, "state MB", ",.1f")))
    yield from readme.table(names, rows)
    yield ""
    yield _ratios(pairs)


def _of_s3(pairs: Sequence[Pair]) -> Iterator[str]:
    yield "Requests of a batch, with the checkpoint on the S3 endpoint:"
    yield ""
    names = ("executors", "shards", "store:", "requests", "for state", *_METHODS, "ms", "CPU ms")
    rows = []
    for pair in pairs:
        for store, figure in sorted(pair.items()):
            made: Mapping[str, float] = figure["requests"]
            of_state = sum(count for what, count in made.items() if what.split()[1] in _STATE)
            counts = [sum(made[what] for what in made if what.startswith(method)) for method in _METHODS]
            cells = [f"{count:.1f}" for count in (sum(made.values()), of_state, *counts)]
            executors = "2" if figure["cluster"] else "local"
            times = [f"{figure[name]:,.0f}" for name in ("wall", "cpu")]
            rows.append((executors, str(figure["shards"]), store, *cells, *times))
    yield from readme.table(names, rows)
    yield ""
    yield _ratios(pairs)


_STATE: Final = ("state", "beamlike/state/data", "beamlike/state/versions")
"""The folders of a checkpoint with state."""


def _of_cluster(pairs: Sequence[Pair]) -> Iterator[str]:
    yield "Two executors, and no task waits for the one that had its state:"
    yield ""
    names = ("checkpoint", "shards", "moved tasks: files", "Spark", "CPU ms: files", "Spark", "ratio")
    rows = []
    for pair in pairs:
        of = pair["files"]
        case = (
            "S3" if of["part"].endswith("s3") else "disk",
            str(of["shards"]),
            *_both(pair, "moved", ".0%"),
        )
        medians = [*_both(pair, "cpu median"), f"{_ratio(pair, 'cpu median'):.2f}"]
        rows.append((*case, *_both(pair, "cpu"), f"{_ratio(pair):.2f}", *medians, *_both(pair, "wall")))
    yield from readme.table((*names, "median: files", "Spark", "ratio", "ms: files", "Spark"), rows)


def _long(pairs: Sequence[Pair]) -> Iterator[str]:
    for pair in pairs:
        of = pair["files"]
        yield f"A run of {of['batches']:,} batches of {of['arrivals']} rows, with {of['rows']:,} live rows:"
        yield ""
        rows = []
        for store in _STORES:
            looks = pair[store]["looks"]
            for share in (0.1, 0.5, 1.0):
                look = min(looks, key=lambda look: abs(look["batches"] - share * of["batches"]))
                rows.append((store, f"{look['batches']:,}", *(f"{look[name]:,.1f}" for name in _LOOKS)))
        yield from readme.table(("store", "batches", *_LOOKS), rows)
        yield ""
        yield _ratios(pairs)


_PARTS: Final = {
    ("rows",): _rows,
    ("s3", "cluster s3"): _of_s3,
    ("cluster", "cluster s3"): _of_cluster,
    ("long",): _long,
}

SECTION: Final = Section("state_stores", (*OF_CASE, "store"), lines)
