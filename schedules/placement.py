"""Decide which device runs each operator, and in which order, with the fewest hand-overs.

A network is a graph of nodes in a valid order. Running it means one order of the nodes; each time
the device changes from one node to the next, the devices hand over, at `crossing_cost`. Times are
whole numbers in one unit (nanoseconds, say), so that ties are ties on every machine.

The state of a run is the set of nodes already done, and the device that did the last one.
Cheapest paths over those states are exact; a network is narrow, so there are few of them. Where
there are too many, regions and nodes are moved one at a time while that helps.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

Device = Literal["cpu", "npu"]
DEVICES: tuple[Device, Device] = ("npu", "cpu")
EXACT_STATES = 20_000


@dataclass(frozen=True)
class Node:
    """One operator; `npu_time` is None where the NPU cannot run it, `cpu_time` None likewise."""

    name: str
    cpu_time: int | None
    npu_time: int | None

    def time(self, device: Device) -> int | None:
        return self.npu_time if device == "npu" else self.cpu_time

    @property
    def is_movable(self) -> bool:
        return self.cpu_time is not None and self.npu_time is not None


@dataclass(frozen=True)
class PlacementGraph:
    """`edges` are (producer, consumer) indices into `nodes`, which stand in a valid order."""

    nodes: tuple[Node, ...]
    edges: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        for node in self.nodes:
            if node.cpu_time is None and node.npu_time is None:
                raise ValueError(f"{node.name}: no device can run it")
        if any(producer >= consumer for producer, consumer in self.edges):
            raise ValueError("an edge points backwards")


@dataclass(frozen=True)
class PlacedRegion:
    """Nodes that run one after the other on one device."""

    device: Device
    nodes: tuple[int, ...]


@dataclass(frozen=True)
class Decision:
    """Nodes the NPU could run but does not: the time on either device, hand-overs included."""

    nodes: tuple[int, ...]
    cpu_time: int
    npu_time: int


@dataclass(frozen=True)
class Placement:
    devices: tuple[Device, ...]
    order: tuple[int, ...]
    regions: tuple[PlacedRegion, ...]
    decisions: tuple[Decision, ...] = field(default=())

    @property
    def crossings(self) -> int:
        return max(len(self.regions) - 1, 0)


def place(graph: PlacementGraph, crossing_cost: int, exact_states: int = EXACT_STATES) -> Placement:
    """The placement of least time, then of fewest hand-overs, then with most nodes on the NPU."""
    devices = _cheapest_devices(graph, crossing_cost, exact_states)
    if devices is None:
        devices = _improve(graph, crossing_cost)
    order = order_with_fewest_crossings(len(graph.nodes), graph.edges, devices)
    return Placement(
        tuple(devices),
        tuple(order),
        tuple(_runs(order, devices)),
        tuple(_decisions(graph, devices, order, crossing_cost)),
    )


def order_with_fewest_crossings(
    nodes: int, edges: Sequence[tuple[int, int]], devices: Sequence[Device]
) -> list[int]:
    """A valid order of 0..nodes-1 with the fewest changes of device, otherwise as given.

    Running everything that is ready on one device before changing can only enlarge what is done,
    so for a given first device it is optimal; both first devices are tried.
    """
    first: Device = devices[0] if nodes else "npu"
    starts: list[Device] = [first, "cpu" if first == "npu" else "npu"]
    orders = [_greedy_order(nodes, edges, devices, start) for start in starts]
    return min(orders, key=lambda order: count_crossings(order, devices))


def count_crossings(order: Sequence[int], devices: Sequence[Device]) -> int:
    """How often the device changes from one node to the next."""
    return sum(devices[a] != devices[b] for a, b in itertools.pairwise(order))


def total_time(graph: PlacementGraph, devices: Sequence[Device], crossing_cost: int) -> int:
    """Time of all nodes on `devices` and of the hand-overs in the best order."""
    order = order_with_fewest_crossings(len(graph.nodes), graph.edges, devices)
    return _node_time(graph, devices) + crossing_cost * count_crossings(order, devices)


def _node_time(graph: PlacementGraph, devices: Sequence[Device]) -> int:
    return sum(node.time(device) or 0 for node, device in zip(graph.nodes, devices, strict=True))


def _greedy_order(
    nodes: int, edges: Sequence[tuple[int, int]], devices: Sequence[Device], start: Device
) -> list[int]:
    producers: list[list[int]] = [[] for _ in range(nodes)]
    for producer, consumer in edges:
        producers[consumer].append(producer)
    done = [False] * nodes
    order: list[int] = []
    device = start
    while len(order) < nodes:
        for node in range(nodes):  # edges point forwards: one sweep finds the whole closure
            ready = not done[node] and all(done[producer] for producer in producers[node])
            if ready and devices[node] == device:
                done[node] = True
                order.append(node)
        device = "cpu" if device == "npu" else "npu"
    return order


def _runs(order: Sequence[int], devices: Sequence[Device]) -> list[PlacedRegion]:
    runs: list[PlacedRegion] = []
    for node in order:
        if runs and runs[-1].device == devices[node]:
            runs[-1] = PlacedRegion(devices[node], (*runs[-1].nodes, node))
        else:
            runs.append(PlacedRegion(devices[node], (node,)))
    return runs


_Rank = tuple[int, int, int]  # time, hand-overs, movable nodes on the CPU
_State = tuple[int, Device]  # nodes done, as a bit mask, and the device of the last


def _cheapest_devices(
    graph: PlacementGraph, crossing_cost: int, exact_states: int
) -> list[Device] | None:
    """Cheapest path over sets of done nodes, by size of the set; None when there are too many."""
    count = len(graph.nodes)
    needs = [0] * count
    for producer, consumer in graph.edges:
        needs[consumer] |= 1 << producer
    layer: dict[_State, _Rank] = {(0, device): (0, 0, 0) for device in DEVICES}
    came: dict[_State, tuple[_State, int]] = {}
    for _ in range(count):
        following: dict[_State, _Rank] = {}
        for (done, last), rank in layer.items():
            if len(came) > exact_states:
                return None
            for node in _ready(done, needs):
                for device in DEVICES:
                    time = graph.nodes[node].time(device)
                    if time is None:
                        continue
                    change = int(done != 0 and device != last)
                    avoided = int(device == "cpu" and graph.nodes[node].is_movable)
                    reached = (
                        rank[0] + time + change * crossing_cost,
                        rank[1] + change,
                        rank[2] + avoided,
                    )
                    state: _State = (done | 1 << node, device)
                    if state not in following or reached < following[state]:
                        following[state] = reached
                        came[state] = ((done, last), node)
        layer = following
    return _trace(min(layer, key=lambda state: layer[state]), came, count)


def _ready(done: int, needs: Sequence[int]) -> list[int]:
    return [node for node, need in enumerate(needs) if not done >> node & 1 and need & done == need]


def _trace(state: _State, came: dict[_State, tuple[_State, int]], count: int) -> list[Device]:
    devices: list[Device] = ["npu"] * count
    while state[0]:
        previous, node = came[state]
        devices[node] = state[1]
        state = previous
    return devices


def _improve(graph: PlacementGraph, crossing_cost: int) -> list[Device]:
    """From everything on the NPU, move regions, then nodes, to the other device while it helps."""
    devices: list[Device] = ["cpu" if node.npu_time is None else "npu" for node in graph.nodes]
    best = total_time(graph, devices, crossing_cost)
    improved = True
    while improved:
        improved = False
        order = order_with_fewest_crossings(len(graph.nodes), graph.edges, devices)
        moves = [region.nodes for region in _runs(order, devices)]
        moves += [(node,) for node in range(len(graph.nodes))]
        for nodes in moves:
            trial = _moved(graph, devices, nodes)
            time = total_time(graph, trial, crossing_cost)
            if time < best:
                devices, best, improved = trial, time, True
    return devices


def _moved(graph: PlacementGraph, devices: Sequence[Device], nodes: Sequence[int]) -> list[Device]:
    """`devices` with the movable ones of `nodes` on the other device."""
    trial = list(devices)
    for node in nodes:
        if graph.nodes[node].is_movable:
            trial[node] = "cpu" if devices[node] == "npu" else "npu"
    return trial


def _decisions(
    graph: PlacementGraph, devices: list[Device], order: Sequence[int], crossing_cost: int
) -> list[Decision]:
    """For each run of movable nodes left on the CPU, what moving it to the NPU would take."""
    crossings = count_crossings(order, devices)
    decisions = []
    for nodes in _movable_groups(graph, devices, order):
        trial = _moved(graph, devices, nodes)
        other = order_with_fewest_crossings(len(graph.nodes), graph.edges, trial)
        more = (count_crossings(other, trial) - crossings) * crossing_cost
        cpu_time = sum(graph.nodes[node].cpu_time or 0 for node in nodes)
        npu_time = sum(graph.nodes[node].npu_time or 0 for node in nodes) + more
        decisions.append(Decision(nodes, cpu_time, npu_time))
    return decisions


def _movable_groups(
    graph: PlacementGraph, devices: Sequence[Device], order: Sequence[int]
) -> list[tuple[int, ...]]:
    groups: list[list[int]] = []
    previous_joins = False
    for node in order:
        joins = devices[node] == "cpu" and graph.nodes[node].is_movable
        if joins and previous_joins:
            groups[-1].append(node)
        elif joins:
            groups.append([node])
        previous_joins = joins
    return [tuple(group) for group in groups]
