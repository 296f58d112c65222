from .classic_core import (
    Allocation,
    ArenaBytes,
    Assign,
    Block,
    IncrementalArena,
    IncrementalPlacement,
    IncrementalPlanner,
    SimpleArena,
    StoragePlan,
)
from .places import place_nodes
from .sharing import Coloring, color_nodes, find_assigns, fuse, order_mutations, share_storage
from .storage import (
    StorageEntry,
    StorageNode,
    StorageOperand,
    StoragePool,
    load_params,
    runtime_json,
    save_params,
)

__all__ = [
    "Allocation",
    "ArenaBytes",
    "Assign",
    "Block",
    "Coloring",
    "IncrementalArena",
    "IncrementalPlacement",
    "IncrementalPlanner",
    "SimpleArena",
    "StorageEntry",
    "StorageNode",
    "StorageOperand",
    "StoragePlan",
    "StoragePool",
    "color_nodes",
    "find_assigns",
    "fuse",
    "load_params",
    "order_mutations",
    "place_nodes",
    "runtime_json",
    "save_params",
    "share_storage",
]
