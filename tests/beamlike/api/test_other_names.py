"""Names of other libraries: the error says what this library has instead; introspection is not disturbed."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
from typing import Any

import pytest

import beamlike as bl
from beamlike.api.grouped import Grouped
from beamlike.api.other_names import COLLECTION, GROUPED, PIPELINE
from beamlike.expressions.other_names import PACKAGE
from tests.support.pipelines import plays

OWNERS: dict[str, tuple[Any, dict[str, str]]] = {
    "a collection": (bl.Collection, dict(COLLECTION)),
    "group_by(...)": (Grouped, dict(GROUPED)),
    "a pipeline": (bl.Pipeline, dict(PIPELINE)),
    "module 'beamlike'": (bl, dict(PACKAGE)),
}


@pytest.mark.parametrize("owner", OWNERS)
def test_no_name_that_there_is_has_a_hint_and_what_hints_name_is_there(owner: str) -> None:
    kind, hints = OWNERS[owner]
    assert [name for name in hints if inspect.getattr_static(kind, name, None) is not None] == []
    named = {name for hint in hints.values() for name in re.findall(r"\bbl\.(\w+)", hint)}
    assert [name for name in sorted(named) if not hasattr(bl, name)] == []
    called = {name for hint in hints.values() for name in re.findall(r"(?<![\w.])([a-z_]+)\(", hint)}
    there = {*dir(bl.Collection), *dir(Grouped), *dir(bl.Pipeline)}
    assert called - there == set()


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("agg", "use aggregate(name=bl.sum('column'))"),
        ("groupBy", "use group_by('key')"),
        ("orderBy", "rows have no order in a stream: "),
        ("sort", "rows have no order in a stream: "),
        ("union", "use bl.flatten(one, other)"),
        ("drop_duplicates", "use dedup('id', within='1h')"),
        ("limit", "use head(n)"),
        ("withColumn", "use with_columns(name=expression)"),
        ("process", "use group_by('key') before it: collection.group_by('key').process(...)"),
        ("pivot", "use an aggregate for each column: "),
        ("user", "use bl.col('user') in an expression"),
        ("window_intoo", "did you mean 'window_into'?"),
    ],
)
def test_a_collection_says_what_there_is_for_a_name(name: str, hint: str) -> None:
    with pytest.raises(AttributeError, match=f"a collection has no '{name}'; {re.escape(hint)}") as caught:
        getattr(plays(), name)
    assert caught.value.name == name


@pytest.mark.parametrize(
    ("owner", "name", "message"),
    [
        (plays().group_by("user"), "agg", "group_by(...) has no 'agg'; use aggregate(name=bl.sum('column'))"),
        (
            plays().group_by("user"),
            "count",
            "group_by(...) has no 'count'; use aggregate(name=bl.count(...))",
        ),
        (bl.Pipeline("p"), "read_csv", "a pipeline has no 'read_csv'; use read('name', bl.CSV('folder'))"),
        (bl, "avg", "module 'beamlike' has no 'avg'; use bl.mean"),
        (bl, "Sesions", "module 'beamlike' has no 'Sesions'; did you mean 'Sessions'?"),
        (bl, "no_such_thing_at_all", "module 'beamlike' has no 'no_such_thing_at_all'"),
    ],
)
def test_others_do_so_too(owner: Any, name: str, message: str) -> None:
    with pytest.raises(AttributeError, match=re.escape(message)):
        getattr(owner, name)


def test_who_only_asks_sees_no_difference() -> None:
    rows = plays()
    for owner in (rows, rows.group_by("user"), rows.pipeline):
        assert not hasattr(owner, "agg")
        assert not hasattr(owner, "_ipython_display_")
        assert not hasattr(owner, "__array__")
        assert getattr(owner, "sort_values", None) is None
        assert "agg" not in dir(owner)
    assert copy.copy(rows).node is rows.node
    # As while a copy is made: the fields are not there yet.
    with pytest.raises(AttributeError):
        _ = object.__new__(bl.Collection).schema
    assert pickle.loads(pickle.dumps(bl.errors.WrongType("x"))).args == ("x",)


def test_a_function_filters_rows_with_and_without_a_side() -> None:
    rows = bl.Pipeline("p").read("rows", bl.Rows([{"n": n} for n in range(6)]))
    assert rows.filter(lambda row: row["n"] % 2 == 0).collect()["n"].to_list() == [0, 2, 4]
    odd = rows.filter(lambda row: row["n"] if row["n"] > 3 else False)
    assert odd.collect()["n"].to_list() == []
    assert (
        "the function of a filter must return True or False; got 4"
        in odd.dead_letters().collect()["error"][0]
    )
