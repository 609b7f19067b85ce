"""Bring an ONNX graph into plain form: nodes sorted and named, no leftovers."""

from __future__ import annotations

from collections.abc import Iterator

import onnx

from tilewright.compiler.frontend.shapes import real_inputs
from tilewright.targets.errors import ModelError


def names_read(node: onnx.NodeProto) -> Iterator[str]:
    """The values a node reads, those its branches and loop bodies read from outside included."""
    yield from (name for name in node.input if name)
    for attribute in node.attribute:
        for graph in [attribute.g, *attribute.graphs]:
            for inner in graph.node:
                yield from names_read(inner)
            yield from (output.name for output in graph.output)


def sort_nodes(graph: onnx.GraphProto) -> None:
    """Order the nodes so that each comes after what it reads; ModelError on a cycle."""
    nodes = list(graph.node)
    producers = {name: node for node in nodes for name in node.output if name}
    done: set[int] = set()
    ordered: list[onnx.NodeProto] = []
    for root in nodes:
        stack = [(root, iter(list(names_read(root))))]
        active = {id(root)}
        while stack and id(root) not in done:
            node, pending = stack[-1]
            following = next(
                (producers[n] for n in pending if n in producers and id(producers[n]) not in done),
                None,
            )
            if following is None:
                stack.pop()
                active.discard(id(node))
                done.add(id(node))
                ordered.append(node)
            elif id(following) in active:
                name = following.name or following.output[0]
                raise ModelError(f"{name}: the node reads its own result; the graph has a cycle")
            else:
                active.add(id(following))
                stack.append((following, iter(list(names_read(following)))))
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in ordered]
    graph.ClearField("node")
    graph.node.extend(copies)


def name_nodes(graph: onnx.GraphProto, *, only_nameless: bool = False) -> None:
    """Give every node a name of its own: nameless ones by operator and output, twins a number."""
    taken = {node.name for node in graph.node if node.name} if only_nameless else set()
    for node in graph.node:
        if only_nameless and node.name:
            continue
        wanted = node.name or f"{node.op_type}_{next((o for o in node.output if o), 'unnamed')}"
        name, number = wanted, 1
        while name in taken:
            number += 1
            name = f"{wanted}_{number}"
        node.name = name
        taken.add(name)


def drop_unused(graph: onnx.GraphProto) -> None:
    """Remove nodes and initialisers that no output needs, and initialisers among the inputs."""
    needed = {output.name for output in graph.output}
    kept = []
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            needed.update(names_read(node))
            kept.append(node)
    kept = [onnx.NodeProto.FromString(node.SerializeToString()) for node in reversed(kept)]
    graph.ClearField("node")
    graph.node.extend(kept)
    inputs = [onnx.ValueInfoProto.FromString(v.SerializeToString()) for v in real_inputs(graph)]
    graph.ClearField("input")
    graph.input.extend(inputs)
    for index in reversed(range(len(graph.initializer))):
        if graph.initializer[index].name not in needed:
            del graph.initializer[index]
