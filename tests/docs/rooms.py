"""`python -m tests.docs.rooms` draws docs/pictures/rooms.svg: the imports between rooms, read from the code.

An arrow leads from a room to a room that imports it. Arrows that follow from a longer path are left out.
"""

from __future__ import annotations

import importlib
import textwrap

import grimp
import networkx as nx

from beamlike.observe.charts.graph_picture import SINK, SOURCE, STAGE, Node, draw_graph
from tests.support.places import ROOT

PICTURE = ROOT / "docs" / "pictures" / "rooms.svg"
_KINDS = {"windowing": SOURCE, "stages": STAGE, "beamlike": SINK}
_CALLED = {SOURCE: "first layer", STAGE: "second layer", SINK: "third layer"}


def rooms() -> list[Node]:
    """Returns a box for `windowing` and for each folder or file below `stages` and `beamlike`, with its content."""
    imports = nx.transitive_reduction(_imports())
    return [
        Node(room, _KINDS[room.partition(".")[0]], [_sentence(room)], sorted(imports.successors(room)))
        for room in nx.lexicographical_topological_sort(imports.reverse())
    ]


def _imports() -> nx.DiGraph:
    modules = grimp.build_graph("windowing", "stages", "beamlike", cache_dir=None)
    graph = nx.DiGraph()
    for module in modules.modules:
        importer = _room(module)
        graph.add_node(importer)
        graph.add_edges_from(
            (importer, _room(found)) for found in modules.find_modules_directly_imported_by(module)
        )
    graph.remove_edges_from(nx.selfloop_edges(graph))
    graph.remove_nodes_from(["beamlike", "stages", "beamlike.version"])  # faces, and a number
    return graph


def _room(module: str) -> str:
    return "windowing" if module.startswith("windowing") else ".".join(module.split(".")[:2])


def _sentence(room: str) -> str:
    """Returns the first sentence of a room's docstring."""
    said = " ".join((importlib.import_module(room).__doc__ or "").split())
    return textwrap.shorten(said.partition(". ")[0].rstrip("."), 150, placeholder=" ...")


def picture() -> str:
    """Returns the graph as SVG; the text above a name is its layer."""
    svg = draw_graph(rooms()).svg()
    for kind, called in _CALLED.items():
        svg = svg.replace(f">{kind}<", f">{called}<")
    return svg


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
