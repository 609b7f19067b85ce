"""Placement against exhaustive enumeration on small random graphs."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence

import pytest

from tilewright.schedules.placement import (
    Device,
    Node,
    PlacementGraph,
    count_crossings,
    order_with_fewest_crossings,
    place,
    total_time,
)


def _random_edges(chance: random.Random, nodes: int) -> list[tuple[int, int]]:
    density = chance.choice([0.15, 0.3, 0.5])
    pairs = itertools.combinations(range(nodes), 2)
    return [pair for pair in pairs if chance.random() < density]


def _valid_orders(nodes: int, edges: Sequence[tuple[int, int]]) -> Iterator[list[int]]:
    def extend(order: list[int]) -> Iterator[list[int]]:
        if len(order) == nodes:
            yield order
        for node in range(nodes):
            needs = [producer for producer, consumer in edges if consumer == node]
            if node not in order and all(need in order for need in needs):
                yield from extend([*order, node])

    return extend([])


def test_order_has_the_exhaustive_minimum_of_crossings() -> None:
    chance = random.Random(1)
    for _ in range(200):
        nodes = chance.randint(1, 7)
        edges = _random_edges(chance, nodes)
        devices: list[Device] = [chance.choice(["cpu", "npu"]) for _ in range(nodes)]
        order = order_with_fewest_crossings(nodes, edges, devices)
        assert sorted(order) == list(range(nodes))
        assert all(order.index(a) < order.index(b) for a, b in edges)
        fewest = min(count_crossings(other, devices) for other in _valid_orders(nodes, edges))
        assert count_crossings(order, devices) == fewest


def _random_graph(chance: random.Random, nodes: int) -> PlacementGraph:
    def node(index: int) -> Node:
        cpu, npu = chance.randint(0, 30), chance.randint(0, 30)
        kind = chance.random()
        if kind < 0.3:
            return Node(f"n{index}", cpu, None)
        return Node(f"n{index}", None if kind > 0.9 else cpu, npu)

    return PlacementGraph(
        tuple(node(index) for index in range(nodes)), tuple(_random_edges(chance, nodes))
    )


def test_place_is_as_quick_as_the_best_of_all_placements() -> None:
    chance = random.Random(2)
    for _ in range(200):
        graph = _random_graph(chance, chance.randint(1, 8))
        cost = chance.randint(0, 20)
        choices = [
            [device for device in ("npu", "cpu") if node.time(device) is not None]
            for node in graph.nodes
        ]
        best = min(total_time(graph, devices, cost) for devices in itertools.product(*choices))
        placement = place(graph, cost)
        assert total_time(graph, placement.devices, cost) == best
        assert placement.crossings == count_crossings(placement.order, placement.devices)
        for decision in placement.decisions:
            assert decision.cpu_time <= decision.npu_time


def test_local_search_is_never_worse_than_everything_on_the_npu() -> None:
    chance = random.Random(3)
    for _ in range(50):
        graph = _random_graph(chance, 12)
        everything: list[Device] = ["cpu" if n.npu_time is None else "npu" for n in graph.nodes]
        placement = place(graph, 10, exact_states=0)
        assert total_time(graph, placement.devices, 10) <= total_time(graph, everything, 10)


def test_a_region_that_does_not_pay_for_its_crossings_stays_on_the_cpu() -> None:
    nodes = (Node("a", 5, None), Node("b", 9, 2), Node("c", 5, None))
    graph = PlacementGraph(nodes, ((0, 1), (1, 2)))
    placement = place(graph, crossing_cost=4)
    assert placement.devices == ("cpu", "cpu", "cpu")
    (decision,) = placement.decisions
    assert (decision.nodes, decision.cpu_time, decision.npu_time) == ((1,), 9, 10)
    assert place(graph, crossing_cost=3).devices == ("cpu", "npu", "cpu")


def test_a_tie_goes_to_the_npu() -> None:
    graph = PlacementGraph((Node("a", 3, 3), Node("b", 3, 3)), ((0, 1),))
    assert place(graph, crossing_cost=1).devices == ("npu", "npu")


def test_a_long_chain_is_placed_exactly_and_quickly() -> None:
    nodes = tuple(Node(str(i), 10, None if i % 50 == 49 else 1) for i in range(400))
    placement = place(PlacementGraph(nodes, tuple((i, i + 1) for i in range(399))), 5)
    assert placement.crossings == 15
    assert not placement.decisions


def test_a_node_no_device_can_run_is_refused() -> None:
    with pytest.raises(ValueError, match="odd: no device can run it"):
        PlacementGraph((Node("odd", None, None),), ())
