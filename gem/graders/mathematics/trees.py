"""Trees of answers: what a `Node` is, and walks over one that need not know what it means.

The tags are listed in `gem.graders.mathematics.latex`, which reads a text into a tree.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

Node: TypeAlias = tuple[Any, ...]


def subtrees(tree: object) -> Iterator[Node]:
    """Yield a tree and all parts of it that are tuples: trees, and rows of trees."""
    if isinstance(tree, tuple) and tree:
        yield tree
        for part in tree:
            yield from subtrees(part)


def symbols(tree: Node) -> set[str]:
    """Return the names of a tree's variables."""
    return {part[1] for part in subtrees(tree) if part[0] == "sym"}


def leaves(tree: Node) -> list[str]:
    """Return the sorted signs, numbers and names of a tree; equal for trees that differ only in order."""
    return sorted(str(leaf) for part in subtrees(tree) for leaf in part if not isinstance(leaf, tuple))


def rename_variables(tree: Any, names: dict[Node, Node]) -> Any:
    """Return a tree with other names of variables."""
    if not isinstance(tree, tuple):
        return tree
    return names[tree] if tree in names else tuple(rename_variables(part, names) for part in tree)


def bare(tree: Node) -> Node:
    """Return a tree without the signs, percent signs and units around it."""
    while tree[0] in ("-", "%", "unit"):
        tree = tree[1]
    return tree
