"""The graph as a picture: the content of the boxes, their places, and the output in a notebook."""

from __future__ import annotations

import subprocess
import sys
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from beamlike.observe.charts.graph_layout import Box, layout
from beamlike.observe.charts.graph_picture import SINK, SOURCE, STAGE, Node, draw_graph
from examples.session_lengths import earliest
from tests.support.browser import find_browser
from tests.support.places import ROOT


@pytest.fixture(scope="module")
def svg() -> str:
    return earliest().plot().svg()


def test_a_pipeline_is_drawn_with_all_that_it_is_made_of(svg):
    for text in (
        ">console</text>",
        ">BoundedOutOfOrderness(bound=5s)</text>",
        ">sessions of mobile</text>",
        ">Sessions(gap=1m)</text>",
        ">by user</text>",
        ">FixedWindows(size=2m)</text>",
        ">DefaultTrigger()</text>",
        ">averages</text>",
        ">Parquet</text>",
    ):
        assert text in svg


def test_a_notebook_shows_the_picture_as_svg(svg):
    picture = earliest().plot()
    assert isinstance(picture, Figure)
    assert picture._repr_svg_() == svg
    assert svg.startswith("<svg")
    assert "<metadata>" not in svg


def test_the_picture_can_be_written(tmp_path):
    earliest().plot().save(tmp_path / "graph.png")
    assert (tmp_path / "graph.png").read_bytes().startswith(b"\x89PNG")


def test_long_facts_are_wrapped_and_long_names_shortened():
    node = Node("n" * 100, STAGE, ["AfterWatermark(" + ", ".join(["early=AfterCount(10)"] * 40) + ")"])
    svg = draw_graph([node]).svg()
    assert f">{'n' * 39}…</text>" in svg
    assert svg.count("early=AfterCount(10)") < 12
    assert " …</text>" in svg


def test_what_holds_a_watermark_is_drawn_differently():
    nodes = [Node("a", SOURCE), Node("b", SOURCE), Node("c", STAGE, inputs=["a", "b"])]
    plain = draw_graph(nodes).svg()
    held = draw_graph([*nodes[:2], Node("c", STAGE, inputs=["a", "b"], held_by="b")]).svg()
    assert "stroke-dasharray" not in plain
    assert held.count("stroke-dasharray") == 1


def test_a_name_is_text_and_no_formula_or_markup():
    svg = draw_graph([Node("$x^2$ <b>&amp;", SINK)]).svg()
    assert ">$x^2$ &lt;b&gt;&amp;amp;</text>" in svg


def test_without_matplotlib_the_error_says_what_to_install():
    code = """
import sys
sys.modules["matplotlib"] = None
from examples.session_lengths import earliest
earliest().plot()
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert "pip install 'beamlike[report]'" in done.stderr


def test_importing_beamlike_does_not_import_matplotlib():
    code = "import sys, beamlike; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


# Places of boxes


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, list[str]]:
    """Draws the inputs of nodes; each node reads only earlier ones."""
    inputs: dict[str, list[str]] = {}
    for number in range(draw(st.integers(1, 9))):
        known = list(inputs)
        reads = draw(st.lists(st.sampled_from(known), max_size=3, unique=True)) if known else []
        inputs[f"n{number}"] = reads
    return inputs


def apart(one: Box, other: Box) -> bool:
    across = abs(one.x - other.x) >= (one.width + other.width) / 2 - 1e-9
    return across or abs(one.y - other.y) >= (one.height + other.height) / 2 - 1e-9


@given(graphs())
def test_boxes_never_overlap_and_stay_in_the_picture(inputs):
    sizes = {name: (1 + number % 3 / 2, 0.5 + number % 2) for number, name in enumerate(inputs)}
    plan = layout(inputs, sizes)
    assert all(apart(one, other) for one, other in combinations(plan.boxes.values(), 2))
    for box in plan.boxes.values():
        assert box.left[0] >= 0
        assert box.right[0] <= plan.width
        assert box.height / 2 <= box.y <= plan.height - box.height / 2


@given(graphs())
def test_edges_go_from_left_to_right_and_through_no_box(inputs):
    sizes = dict.fromkeys(inputs, (1.0, 0.5))
    plan = layout(inputs, sizes)
    assert set(plan.edges) == {(read, name) for name, names in inputs.items() for read in names}
    for (start, end), path in plan.edges.items():
        assert path[0] == plan.boxes[start]
        assert path[-1] == plan.boxes[end]
        assert all(before.right[0] < after.left[0] for before, after in pairwise(path))
        others = [box for name, box in plan.boxes.items() if name not in (start, end)]
        assert all(apart(lane, box) for lane in path[1:-1] for box in others)


@given(graphs())
def test_the_layout_is_the_same_each_time(inputs):
    sizes = dict.fromkeys(inputs, (1.0, 0.5))
    assert layout(inputs, sizes) == layout(inputs, sizes)


def test_a_browser_shows_all_labels(tmp_path):
    browser = find_browser(tmp_path)
    nodes = [Node(f"source {number}", SOURCE, ["Rows", "MonotonousTimestamps()"]) for number in range(5)]
    nodes += [
        Node(
            f"stage {number}",
            STAGE,
            ["AfterWatermark(early=AfterCount(10))"],
            [f"source {number % 5}", "source 0"],
        )
        for number in range(6)
    ]
    nodes += [
        Node("last", STAGE, ["Sessions(gap=1m)"], ["stage 1", "stage 5", "source 2"], holds="held by key 1")
    ]
    page = tmp_path / "graph.html"
    page.write_text(f"<!DOCTYPE html><body>{draw_graph(nodes).svg()}</body>", encoding="utf-8")
    assert browser.faults(page) == []
