"""No circle of imports, imports inside functions and those for type checkers included."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

import grimp

ROOMS = ("sessions", "engine", "probes", "tui")


def circle(graph: grimp.ImportGraph) -> list[str]:
    """Modules that import one another in a circle, the first one again at the end; empty when there are none."""
    try:
        TopologicalSorter(
            {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
        ).prepare()
    except CycleError as error:
        found: list[str] = error.args[1]
        return found
    return []


def test_no_module_imports_itself_by_way_of_others() -> None:
    graph = grimp.build_graph(*ROOMS, cache_dir=None)
    assert {module.partition(".")[0] for module in graph.modules} == set(ROOMS)
    assert circle(graph) == []


def test_a_circle_is_found() -> None:
    graph = grimp.ImportGraph()
    for importer, imported in (("a", "b"), ("b", "c"), ("c", "b")):
        graph.add_import(importer=importer, imported=imported)
    assert set(circle(graph)) == {"b", "c"}
