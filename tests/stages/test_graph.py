"""The stage graph: names, order, levels, and the paths in its errors."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.graph import CycleError, GraphError, StageGraph, UnknownInput

#   mobile  -> sessions -.
#                         +-> averages -> report
#   console -------------'                 ^
#      `-----------------------------------'
DIAMOND = {
    "report": ["averages", "console"],
    "averages": ["sessions", "console"],
    "sessions": ["mobile"],
    "mobile": [],
    "console": [],
}


def test_levels_are_longest_paths_from_a_source():
    graph = StageGraph.from_inputs(DIAMOND)
    assert graph.levels() == (("console", "mobile"), ("sessions",), ("averages",), ("report",))
    assert [graph.level(name) for name in ("console", "sessions", "report")] == [0, 1, 3]


def test_order_is_topological_and_then_by_the_alphabet():
    assert StageGraph.from_inputs(DIAMOND).order() == ("console", "mobile", "sessions", "averages", "report")


def test_neighbours_are_sorted():
    graph = StageGraph.from_inputs(DIAMOND)
    assert graph.sources() == ("console", "mobile")
    assert graph.inputs("averages") == ("console", "sessions")
    assert graph.consumers("console") == ("averages", "report")
    assert graph.upstream("averages") == ("console", "mobile", "sessions")


def test_an_input_read_twice_is_one_edge():
    assert StageGraph.from_inputs({"a": [], "b": ["a", "a"]}).inputs("b") == ("a",)


@pytest.mark.parametrize(
    ("inputs", "path"),
    [
        ({"a": ["b"], "b": ["a"]}, "a -> b -> a"),
        ({"s": [], "x": ["s", "z"], "y": ["x"], "z": ["y"]}, "x -> y -> z -> x"),
        ({"a": ["a"]}, "a -> a"),
    ],
)
def test_a_cycle_is_reported_as_a_path(inputs, path):
    with pytest.raises(CycleError, match=f"cycle: {path}$"):
        StageGraph.from_inputs(inputs)


def test_an_unknown_input_is_reported_with_the_nearest_match():
    with pytest.raises(UnknownInput, match=r"mobil -> sessions: .*did you mean 'mobile'\?"):
        StageGraph.from_inputs({"mobile": [], "sessions": ["mobil"]})


def test_asking_for_an_unknown_name_is_a_lookup_error():
    with pytest.raises(LookupError, match=r"'session', .*did you mean 'sessions'\?"):
        StageGraph.from_inputs(DIAMOND).inputs("session")


def test_two_stages_of_one_name_are_refused():
    with pytest.raises(GraphError, match="two stages are called 'a'"):
        StageGraph.from_inputs([("a", []), ("a", [])])


def test_a_string_is_not_taken_as_several_names():
    with pytest.raises(TypeError, match="the inputs of 'b'"):
        StageGraph.from_inputs({"a": [], "b": "a"})


def test_an_empty_graph_has_no_levels():
    assert StageGraph.from_inputs({}).levels() == ()


def test_it_is_frozen_and_survives_pickle():
    graph = StageGraph.from_inputs(DIAMOND)
    with pytest.raises(AttributeError):
        graph.mapping = {}
    copy = pickle.loads(pickle.dumps(graph))
    assert copy == graph
    assert copy.levels() == graph.levels()


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, list[str]]:
    names = draw(st.lists(st.text("abcdef", min_size=1), unique=True, max_size=8))
    return {
        name: draw(st.lists(st.sampled_from(names[:index]), unique=True)) if index else []
        for index, name in enumerate(names)
    }


@given(graphs(), st.randoms())
def test_a_graph_does_not_depend_on_the_order_of_declaration(inputs, random):
    shuffled = list(inputs.items())
    random.shuffle(shuffled)
    one, other = StageGraph.from_inputs(inputs), StageGraph.from_inputs(shuffled)
    assert one == other
    assert (one.order(), one.levels()) == (other.order(), other.levels())


@given(graphs())
def test_every_stage_comes_after_its_inputs_and_one_level_above_the_deepest(inputs):
    graph = StageGraph.from_inputs(inputs)
    order = graph.order()
    for name, producers in inputs.items():
        assert all(order.index(producer) < order.index(name) for producer in producers)
        assert graph.level(name) == 1 + max((graph.level(producer) for producer in producers), default=-1)
