"""
The Rust core of arenaplan.
"""

from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from typing import Any, Final, final

from _typeshed import Incomplete
from numpy import ndarray

__all__ = [
    "Allocation",
    "Arena",
    "ArenaBytes",
    "Assign",
    "Block",
    "ByteEncoding",
    "ByteResult",
    "CallerBuffer",
    "CompiledKernel",
    "ConvWay",
    "Covers",
    "Estimate",
    "Explained",
    "Graph",
    "Hazard",
    "Hazards",
    "IncrementalArena",
    "IncrementalPlacement",
    "IncrementalPlanner",
    "Lease",
    "Level",
    "LineBuffer",
    "Live",
    "Model",
    "MoveCost",
    "Packing",
    "Paging",
    "PlacedWorkspace",
    "Placement",
    "Plan",
    "PlanPoint",
    "PlannedSpace",
    "Queue",
    "RecomputeCurve",
    "RecomputePoint",
    "RowsInPlace",
    "Share",
    "SharedPlan",
    "SharedVerdict",
    "SimpleArena",
    "StepOperands",
    "StorageLayout",
    "StoragePlan",
    "Strips",
    "Target",
    "ThreadTeam",
    "Timetable",
    "Transfer",
    "Variable",
    "Verdict",
    "WindowSide",
    "__version__",
    "color_nodes",
    "explain",
    "extra_of_chen",
    "find_assigns",
    "fuse",
    "graph_schema",
    "hazards_schema",
    "load_params",
    "minimum_cut",
    "model_schema",
    "nodes_in_strips",
    "order_mutations",
    "pack",
    "pack_again",
    "pack_apart",
    "pack_blame",
    "pack_csv",
    "pack_csv_again",
    "pack_csv_blame",
    "pack_matrix",
    "pack_quantized",
    "pack_quantized_matrix",
    "pack_weights",
    "packed_matrix",
    "packed_quantized",
    "packed_quantized_matrix",
    "packed_weights",
    "plan",
    "plan_schema",
    "plan_together",
    "quantized_conv",
    "quantized_depthwise",
    "quantized_depthwise_scratch",
    "quantized_lanes",
    "quantized_product",
    "quantized_product_scratch",
    "quantized_way",
    "recompute",
    "recompute_curve",
    "save_params",
    "set_views",
    "share_storage",
    "step_times",
    "targets",
    "techniques",
    "write_files",
]

__version__: Final[str]
"""
Version of the Rust core.
"""

@final
class Allocation:
    """
    Bytes in an incremental arena with a live range.
    """

    def __eq__(self, value: object, /) -> bool: ...
    def __hash__(self, /) -> int: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __repr__(self, /) -> str: ...
    @property
    def live(self, /) -> Live:
        """
        Steps in which the bytes are needed.
        """
    @property
    def nbytes(self, /) -> int:
        """
        Size in bytes.
        """
    @property
    def offset(self, /) -> int:
        """
        First byte.
        """

@final
class Arena:
    """
    Memory that plans run in: from :meth:`Plan.commit`, or the caller's.

    ``Arena(memory)`` takes any writable buffer without gaps, such as a NumPy array, a
    ``bytearray``, an ``mmap`` or the ``buf`` of a ``SharedMemory``, uses the buffer in place, and
    holds the buffer until the arena is closed. An executor asks for the plan's bytes and alignment.

    An arena is a writable byte buffer: ``memoryview(arena)``, ``numpy.frombuffer(arena, "u1")`` and
    ``numpy.from_dlpack(arena)`` share the memory and keep the memory alive. Only one run at a time
    may use an arena: see :meth:`lease`.

    Parameters
    ----------
    memory : buffer
        The bytes.

    Raises
    ------
    InvalidBuffer
        If the memory is not a buffer in main memory, is read-only, or has gaps.

    Examples
    --------
    >>> import mmap
    >>> import arenaplan as ap
    >>> memory = mmap.mmap(-1, 1 << 16)
    >>> with ap.Arena(memory) as arena:
    ...     arena.nbytes, arena.address % 4096
    (65536, 0)
    """

    def __buffer__(self, flags: int, /) -> memoryview:
        """
        Share the memory as a writable buffer of bytes.
        """
    def __dlpack__(self, /, **options: object) -> Any:
        """
        Share the memory as DLPack, through NumPy.
        """
    def __dlpack_device__(self, /) -> tuple[int, int]:
        """
        DLPack's device name: main memory.
        """
    def __enter__(self, /) -> Arena: ...
    def __exit__(self, /, *_exception: object) -> None:
        """
        Close the arena, unless views are still alive: views keep the memory.
        """
    def __len__(self, /) -> int: ...
    def __new__(cls, /, memory: object) -> Arena: ...
    def __reduce__(self, /) -> tuple[str]: ...
    def __repr__(self, /) -> str: ...
    @property
    def address(self, /) -> int:
        """
        Address: the first byte.
        """
    def close(self, /) -> None:
        """
        Free the memory; the caller's memory is let go, and stays unchanged.

        Raises
        ------
        ArenaInUse
            If buffers share the memory.
        ArenaBusy
            If a run has the arena.
        """
    @property
    def closed(self, /) -> bool:
        """
        Whether the memory was freed.
        """
    def lease(self, /) -> Lease:
        """
        Reserve the arena for one run, until the returned lease is released.

        Raises
        ------
        ArenaBusy
            If another run has the arena.
        ArenaState
            If the arena is closed.
        """
    @property
    def nbytes(self, /) -> int:
        """
        Size in bytes.
        """
    @property
    def process(self, /) -> int:
        """
        Process that the arena was made in.
        """
    @property
    def views(self, /) -> int:
        """
        Number of buffers that share the memory now.
        """

@final
class ArenaBytes:
    """
    Arena bytes of an incremental planner.
    """

    def __eq__(self, value: object, /) -> bool: ...
    def __getnewargs__(self, /) -> tuple[int, int]: ...
    def __hash__(self, /) -> int: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __new__(cls, /, temporary: int, persistent: int) -> ArenaBytes: ...
    def __repr__(self, /) -> str: ...
    @property
    def persistent(self, /) -> int:
        """
        Bytes of the arena for states.
        """
    @property
    def temporary(self, /) -> int:
        """
        Bytes of the arena for values that die.
        """

@final
class Assign:
    """
    A node that overwrites a state with the bytes of another value; values by index.
    """

    def __eq__(self, value: object, /) -> bool: ...
    def __getnewargs__(self, /) -> tuple[bool, int, int, int]: ...
    def __hash__(self, /) -> int: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __new__(cls, /, direct: bool, state: int, source: int, result: int) -> Assign: ...
    def __repr__(self, /) -> str: ...
    @property
    def direct(self, /) -> bool:
        """
        Whether the producer of the right side writes the state, and the node does nothing.
        """
    @property
    def result(self, /) -> int:
        """
        The node's result: the new bytes of the state.
        """
    @property
    def source(self, /) -> int:
        """
        The right side.
        """
    @property
    def state(self, /) -> int:
        """
        The left side.
        """

@final
class Block:
    """
    A block of memory that values share one after another.
    """

    def __eq__(self, value: object, /) -> bool: ...
    def __getnewargs__(self, /) -> tuple[int, str]: ...
    def __hash__(self, /) -> int: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __new__(cls, /, bytes: int, space: str) -> Block: ...
    def __repr__(self, /) -> str: ...
    @property
    def bytes(self, /) -> int:
        """
        Size in bytes.
        """
    @property
    def space(self, /) -> str:
        """
        Space name.
        """

@final
class ByteEncoding:
    """
    The integers that bytes stand for.

    Parameters
    ----------
    signed : bool
        Whether a byte is a signed integer.
    zero : int
        The integer that stands for zero.
    """

    def __eq__(self, value: object, /) -> bool: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __new__(cls, /, signed: bool, zero: int) -> ByteEncoding: ...

@final
class ByteResult:
    """
    The way from exact sums to bytes.

    A channel's sum is multiplied by the channel's scale, the shift is added, the number is bounded,
    divided, and rounded to the nearest integer, ties to even.

    Parameters
    ----------
    scale, shift : array of float32
        One number for each channel.
    low, high : float
    divisor : float
        The result scale.
    result : ByteEncoding
    addend : array of int32, optional
        For each channel, an integer that its sums begin with.
    """

    def __new__(
        cls,
        /,
        scale: ndarray[Any, Any],
        shift: ndarray[Any, Any],
        low: float,
        high: float,
        divisor: float,
        result: ByteEncoding,
        addend: ndarray[Any, Any] | None = None,
    ) -> ByteResult: ...

@final
class CallerBuffer:
    """
    A buffer that the caller brings to each run.
    """

    def __eq__(self, value: object, /) -> bool: ...
    def __getnewargs__(self, /) -> tuple[int, str, int]: ...
    def __hash__(self, /) -> int: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __new__(cls, /, value: int, name: str, bytes: int) -> CallerBuffer: ...
    def __repr__(self, /) -> str: ...
    @property
    def bytes(self, /) -> int:
        """
        Size in bytes.
        """
    @property
    def name(self, /) -> str:
        """
        Value name.
        """
    @property
    def value(self, /) -> int:
        """
        Value index in the graph.
        """

@final
class CompiledKernel:
    """
    A kernel that is bound to the executor's arrays; calling the kernel does the work.

    A kernel keeps the arrays alive, allocates nothing, and runs without the interpreter lock. A
    kernel that is made in a block of a :class:`ThreadTeam` is divided among the team's threads.
    """

    def __call__(self, /) -> None:
        """
        Do the work.
        """
    def __repr__(self, /) -> str: ...
    @staticmethod
    def chain(
        steps: Sequence[tuple[str, int, Sequence[int | float]]],
        result: int,
        operands: Sequence[ndarray[Any, Any]],
        output: ndarray[Any, Any],
    ) -> CompiledKernel:
        """
        Return an elementwise function chain.

        Parameters
        ----------
        steps : list of (str, int, tuple of three int or float)
            Function, result register, and arguments: a register number, or a constant. Arguments
            that the function does not have are any constants. The function ``"load"`` has an
            operand position as its first argument.
        result : int
            The register that is written. Integers are rounded to the nearest, and bounded.
        operands : list of array
            Arrays in single precision or 8-bit integers, broadcast to the output's shape.
        output : array
            An array like the operands. May be the memory of an operand with the same shape, or
            begin before an operand with wider elements if both are contiguous.
        """
    @staticmethod
    def conv(
        image: ndarray[Any, Any],
        weights: ndarray[Any, Any],
        output: ndarray[Any, Any],
        scratch: ndarray[Any, Any],
        rows: WindowSide,
        columns: WindowSide,
        groups: int,
        bias: ndarray[Any, Any] | None = None,
        low: float = ...,
        high: float = ...,
        addend: ndarray[Any, Any] | None = None,
    ) -> CompiledKernel:
        """
        Return a convolution by a matrix product.

        Parameters
        ----------
        image : array, shape (images, channels, ...)
        weights : array
            Weights from :func:`pack_weights`.
        output : array, shape (images, channels, ...)
        scratch : array
            :attr:`ConvWay.elements` elements for a way; the more, the faster.
        rows, columns : WindowSide
            The two spatial dimensions.
        groups : int
        bias : array, optional
            One number per output channel.
        low, high : float
            Output bounds.
        addend : array, optional
            Added to the result; may be the output's memory.
        """
    @staticmethod
    def conv_way(
        rows: WindowSide, columns: WindowSide, fan_in: int, fan_out: int, room: int
    ) -> ConvWay:
        """
        Return the fastest way for :meth:`conv` within so many scratch elements, at least 48.

        Parameters
        ----------
        fan_in, fan_out : int
            Channels per group.
        room : int
        """
    @staticmethod
    def depthwise(
        image: ndarray[Any, Any],
        weights: ndarray[Any, Any],
        output: ndarray[Any, Any],
        scratch: ndarray[Any, Any],
        rows: WindowSide,
        columns: WindowSide,
        bias: ndarray[Any, Any] | None = None,
        low: float = ...,
        high: float = ...,
    ) -> CompiledKernel:
        """
        Return a convolution of every channel by itself: see :meth:`conv`.

        Parameters
        ----------
        weights : array
            One window per output channel.
        scratch : array
            :meth:`depthwise_scratch` elements.
        """
    @staticmethod
    def depthwise_scratch(rows: WindowSide, columns: WindowSide) -> int:
        """
        Return the scratch elements that :meth:`depthwise` needs.
        """
    @staticmethod
    def normalization(
        source: ndarray[Any, Any] | None,
        output: ndarray[Any, Any],
        epsilon: float,
        centered: bool,
        scale: ndarray[Any, Any] | None = None,
        shift: ndarray[Any, Any] | None = None,
    ) -> CompiledKernel:
        """
        Return a normalization of an array's rows: see :meth:`softmax`.

        Parameters
        ----------
        epsilon : float
            Added to the variance.
        centered : bool
            Whether the mean is subtracted.
        scale, shift : array, optional
            Applied to every row.
        """
    @staticmethod
    def pool(
        image: ndarray[Any, Any],
        output: ndarray[Any, Any],
        scratch: ndarray[Any, Any],
        rows: WindowSide,
        columns: WindowSide,
        counts: tuple[ndarray[Any, Any], ndarray[Any, Any]] | None = None,
    ) -> CompiledKernel:
        """
        Return the pooling under windows: the largest elements, or sums divided by counts.

        Parameters
        ----------
        scratch : array
            As many elements as an image row has.
        counts : (array, array), optional
            One number per output row and column; the largest element if left out.
        """
    @staticmethod
    def product(
        rows: ndarray[Any, Any],
        matrix: ndarray[Any, Any],
        output: ndarray[Any, Any],
        bias: ndarray[Any, Any] | None = None,
    ) -> CompiledKernel:
        """
        Return the product of one or several matrices and a matrix from :func:`pack_matrix`.

        Parameters
        ----------
        rows : array, shape (..., depth)
        matrix : array
        output : array, shape (..., columns)
        bias : array, optional
            One number per column, which is added.
        """
    @staticmethod
    def recurrent(
        cell: str,
        sums: ndarray[Any, Any],
        state: ndarray[Any, Any],
        memory: ndarray[Any, Any],
        early: ndarray[Any, Any],
        late: ndarray[Any, Any] | None,
        bias: ndarray[Any, Any] | None,
        output: ndarray[Any, Any] | None,
        backward: bool,
    ) -> CompiledKernel:
        """
        Return some steps in a recurrent layer.

        Parameters
        ----------
        cell : {"RNN", "rectified RNN", "GRU", "late GRU", "LSTM"}
            The resets of a late GRU come after the product with the hidden state.
        sums : array, shape (steps, sequences, gates * hidden)
            The gates' products with the input, and the biases; overwritten.
        state, memory : array, shape (sequences, hidden)
            The hidden state, and the cell of an LSTM; scratch memory of a GRU.
        early, late : array
            Matrices from :func:`pack_matrix`; the second is for the last gate of a GRU.
        bias : array, optional
            The bias of the product with ``late``, for a late GRU.
        output : array, shape (steps, sequences, hidden), optional
            The hidden state after each step.
        backward : bool
            Whether the last step comes first.
        """
    @staticmethod
    def softmax(source: ndarray[Any, Any] | None, output: ndarray[Any, Any]) -> CompiledKernel:
        """
        Return the softmax over an array's rows: the elements along the last axis.

        Parameters
        ----------
        source : array or None
            If left out, the output's rows are replaced.
        """
    @staticmethod
    def table_softmax(
        source: ndarray[Any, Any],
        length: int,
        table: ndarray[Any, Any],
        factor: float,
        zero: float,
        output: ndarray[Any, Any],
    ) -> CompiledKernel:
        """
        Return the softmax over contiguous rows of 8-bit integers.

        Parameters
        ----------
        source : array
        length : int
            Elements per row.
        table : array of float32, shape (256,)
            Powers: the last power for the largest element in a row, the power before for an integer
            less by one, and so on.
        factor : float
            Factor for each power, before the division by their sum.
        zero : float
            Added to the rounded quotient.
        output : array
            Array with the source's shape; may be the source's memory.
        """

@final
class ConvWay:
    """
    A way to compute a convolution.
    """

    @property
    def cycles(self, /) -> int:
        """
        Estimated cycles for one group's product, with operands in cache.
        """
    @property
    def elements(self, /) -> int:
        """
        Scratch elements.
        """

@final
class Covers:
    """
    The part of a model that a graph, and a plan for the graph, stand for. No consumer that
    answers for the model, such as a budget or a gate, accepts a part.

    Examples
    --------
    >>> import arenaplan as ap
    >>> graph = ap.Graph()
    >>> graph.output(graph.input("x", (64,)))
    >>> str(ap.plan(graph).covers)
    'the whole model'
    """

    def __eq__(self, value: object, /) -> bool: ...
    def __getnewargs__(self, /) -> tuple[list[str], list[str], str, list[str]]: ...
    def __hash__(self, /) -> int: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __new__(
        cls,
        /,
        waiting: Sequence[str],
        deciders: Sequence[str],
        signature: str,
        others: Sequence[str],
    ) -> Covers: ...
    def __repr__(self, /) -> str: ...
    def __str__(self, /) -> str: ...
    @property
    def deciders(self, /) -> list[str]:
        """
        The causes of those sizes, a sentence each.
        """
    @property
    def is_whole(self, /) -> bool:
        """
        Whether the graph has the whole model.
        """
    @property
    def others(self, /) -> list[str]:
        """
        Names of the other entry points, which are not in the graph.
        """
    def require_whole(self, /, model: str) -> None:
        """
        Refuse a part of a model.

        Raises
        ------
        PartOfModel
            If the graph has only a part of the model.
        """
    @property
    def signature(self, /) -> str:
        """
        Name of the model's entry point, if the model has several.
        """
    @property
    def waiting(self, /) -> list[str]:
        """
        Nodes that are not in the graph, because needed sizes depend on data.
        """

@final
class Estimate:
    """
    Estimated run times.
    """

    def __eq__(self, value: object, /) -> bool: ...
    def __getnewargs__(self, /) -> tuple[float, float]: ...
    def __hash__(self, /) -> int: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __new__(cls, /, seconds: float, fastest_seconds: float) -> Estimate: ...
    def __repr__(self, /) -> str: ...
    @property
    def fastest_seconds(self, /) -> float:
        """
        Seconds per run in the fastest known way.
        """
    @property
    def seconds(self, /) -> float:
        """
        Seconds per run of the plan.
        """

@final
class Explained:
    """
    A plan, and the bytes and times for other choices of techniques.
    """

    @property
    def levels(self, /) -> list[Level]:
        """
        Points as techniques are added one after the other.
        """
    @property
    def plan(self, /) -> Plan:
        """
        The plan with all techniques that were asked for.
        """
    @property
    def points(self, /) -> list[PlanPoint]:
        """
        The points that no other compared plan beats.
        """
    @property
    def switched(self, /) -> list[Level]:
        """
        With one technique alone switched the other way.
        """
    @property
    def without(self, /) -> PlanPoint:
        """
        Without any technique.
        """

@final
class Graph:
    """
    A validated, immutable graph.
    """

    def __new__(
        cls,
        /,
        name: str,
        values: Sequence[tuple[str, str, str, Sequence[int], int | None, str | None]],
        nodes: Sequence[
            tuple[
                str,
                str,
                Sequence[int | None],
                Sequence[int | None],
                object,
                Sequence[int],
                str,
                int,
                Mapping[str, object],
                int,
            ]
        ],
        outputs: Sequence[int],
        write_backs: Sequence[tuple[int, int]] = ...,
        memory: str = "arena",
        covers: Covers | None = None,
    ) -> Graph:
        """
        Validate value and node tables.
        """
    @property
    def covers(self, /) -> Covers:
        """
        The part of the model in the graph.
        """
    def declared(
        self,
        /,
        costs: Any,
        steps: Sequence[Sequence[int]],
        staged: Sequence[int],
        strips: Sequence[Strips],
    ) -> Graph:
        """
        Return a copy whose steps have the scratch memory that the costs of a backend declare: the
        graph that a plan with these steps is checked against.

        ``steps`` name the nodes that run as one, ``staged`` the last nodes of steps whose output is
        over an input at a distance, and ``strips`` says how steps run strip by strip.
        """
    @property
    def digest(self, /) -> str:
        """
        SHA-256, in hexadecimal, of everything that a plan depends on.
        """
    @staticmethod
    def from_json(text: str | bytes) -> Graph:
        """
        Return the graph that JSON text holds.
        """
    def grouped(self, /, groups: Sequence[Sequence[int]], strips: Sequence[int] = ...) -> Graph:
        """
        Return the graph in which each group of nodes, by index in execution order, is one node.
        Values keep their indices. Groups that end with a node in ``strips`` run strip by strip.

        Raises
        ------
        InvalidGroup
            If nodes cannot run as one.
        """
    @property
    def order(self, /) -> list[int]:
        """
        Indices of the nodes in execution order.
        """
    def scheduled(
        self, /, schedule: Sequence[int | Transfer], paging: Paging | None = None
    ) -> Graph:
        """
        Return the graph in which each execution in a schedule is a node. The schedule lists nodes
        by index, and copied values.
        """
    @property
    def sizes(self, /) -> list[int]:
        """
        Bytes by value.
        """
    def to_json(self, /) -> str:
        """
        Return the graph as JSON text.
        """
    @property
    def was_sorted(self, /) -> bool:
        """
        Whether the nodes were not in a topological order and had to be sorted.
        """
    def with_inner_sizes(self, /, sizes: Sequence[tuple[int, Sequence[tuple[int, int]]]]) -> Graph:
        """
        Return a copy in which nodes, by index, may have less inner memory: pairs of bytes and
        additional work, by falling bytes.
        """
    def with_pins(self, /, pins: Sequence[tuple[int, int]]) -> Graph:
        """
        Return a copy in which some values, by index, lie at fixed offsets in bytes.
        """

@final
class Hazard:
    """
    One step that must wait for another.
    """

    def __eq__(self, value: object, /) -> bool: ...
    def __getnewargs__(self, /) -> tuple[int, int, str]: ...
    def __hash__(self, /) -> int: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __new__(cls, /, after: int, before: int, kind: str) -> Hazard: ...
    def __repr__(self, /) -> str: ...
    @property
    def after(self, /) -> int:
        """
        The waiting step's index.
        """
    @property
    def before(self, /) -> int:
        """
        The required earlier step's index.
        """
    @property
    def kind(self, /) -> str:
        """
        Why: ``"data"``, ``"write-after-read"``, ``"write-after-write"`` or ``"control"``.
        """

@final
class Hazards:
    """
    The dependencies between a plan's steps, transitively reduced.

    A runner that starts each step after the required steps have ended may run all other steps in
    any order and at the same time. :meth:`Plan.hazards` computes hazards,
    :meth:`Plan.check_hazards` proves hazards.

    Examples
    --------
    >>> import arenaplan as ap
    >>> graph = ap.Graph()
    >>> x = graph.input("x", (64,))
    >>> (y,) = graph.node("Conv", [x], [("y", (64,), "float32")])
    >>> (z,) = graph.node("Conv", [y], [("z", (64,), "float32")])
    >>> graph.output(z)
    >>> hazards = ap.plan(graph).hazards(graph)
    >>> hazards.of(1)
    [Hazard(after=1, before=0, kind='data')]
    """

    def __eq__(self, value: object, /) -> bool: ...
    def __len__(self, /) -> int: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __reduce__(self, /) -> tuple[Any, tuple[bytes]]: ...
    def __repr__(self, /) -> str: ...
    def critical_path(self, /, costs: Sequence[int]) -> int:
        """
        Return the time along the longest chain of dependent steps.
        """
    def dependents(self, /) -> list[list[int]]:
        """
        Return the dependent steps by step.
        """
    @property
    def digest(self, /) -> str:
        """
        Planned graph digest.
        """
    @property
    def edges(self, /) -> list[Hazard]:
        """
        The edges, ascending by later step, then by earlier step.
        """
    @staticmethod
    def from_json(text: str | bytes) -> Hazards:
        """
        Return the hazards that JSON text holds.
        """
    @property
    def model(self, /) -> str:
        """
        Model name.
        """
    def of(self, /, step: int) -> list[Hazard]:
        """
        Return the edges to a step: the steps that must end before.
        """
    @property
    def steps(self, /) -> int:
        """
        Step count.
        """
    def timetable(self, /, costs: Sequence[int], workers: int) -> Timetable:
        """
        Return the start times if ``workers`` run the steps, each worker the first ready step in
        order.

        Parameters
        ----------
        costs : list of int
            Time by step.
        workers : int
            Worker count.
        """
    def to_json(self, /) -> str:
        """
        Return the hazards as JSON text.
        """

@final
class IncrementalArena:
    """
    An arena whose allocations have live ranges and avoid only allocations that are live together,
    as in today's TensorFlow Lite.

    ``rule`` is ``"shortest"``, or ``"litert"`` for the original's way to compare gaps.
    """

    def __new__(cls, /, alignment: int = ..., *, rule: str = ...) -> IncrementalArena:
        """
        Make an empty arena whose first byte will be at a multiple of ``alignment``.
        """
    @property
    def active(self, /) -> int:
        """
        Number of active allocations.
        """
    def allocate(self, /, alignment: int, nbytes: int, start: int, stop: int) -> Allocation:
        """
        Return ``nbytes`` bytes that no active allocation has from step ``start`` up to, and
        without, ``stop``.

        Raises
        ------
        InvalidAlignment
            If ``alignment`` is stricter than the arena's.
        InvalidLiveRange
            If there is no step in the range.
        SizeOverflow
            If no machine can address the arena then.
        """
    @property
    def buffer_bytes(self, /) -> int:
        """
        Memory size in bytes.
        """
    def clear(self, /) -> None:
        """
        Drop all allocations and the high-water mark, and keep the memory.
        """
    def commit(self, /) -> bool:
        """
        Get memory for all allocations; return whether the bytes moved.

        Raises
        ------
        ArenaCommitError
            If there is not enough memory; the arena is then unchanged.
        ArenaInUse
            If the memory would move while views are alive.
        """
    def deallocate(self, /, allocation: Allocation) -> None:
        """
        Drop an allocation, if active.
        """
    @property
    def high_water(self, /) -> int:
        """
        End of the highest allocation since the arena was cleared.
        """
    def lease(self, /) -> Lease:
        """
        Reserve the arena for one run, until the returned lease is released.

        Raises
        ------
        ArenaBusy
            If another run has the arena.
        """
    def purge_after(self, /, step: int) -> None:
        """
        Drop the allocations that begin after ``step``.
        """
    def purge_before(self, /, step: int) -> None:
        """
        Drop the allocations that are over before ``step``.
        """
    def release(self, /) -> None:
        """
        Free the memory, and keep the allocations; a commit is needed again.

        Raises
        ------
        ArenaInUse
            If views of the memory are alive.
        """
    def reset(self, /) -> None:
        """
        Drop all allocations, and keep the high-water mark.
        """
    def resolve(self, /, allocation: Allocation) -> bytes | None:
        """
        Return a copy of an allocation's bytes, or None if empty.
        """
    def restore(self, /, allocations: Sequence[Allocation]) -> None:
        """
        Make exactly ``allocations``, which this arena made, active.
        """
    def view(self, /, allocation: Allocation) -> memoryview | None:
        """
        Return a writable view of an allocation's bytes, or None if empty.

        While the view is alive, :meth:`commit` does not move the memory, nor does :meth:`release`
        free the memory.
        """
    def write(self, /, allocation: Allocation, data: bytes) -> None:
        """
        Overwrite the first bytes of an allocation.
        """

@final
class IncrementalPlacement:
    """
    The place of a value in an arena that is planned while the model runs.
    """

    def __eq__(self, value: object, /) -> bool: ...
    def __getnewargs__(self, /) -> tuple[bool, int, int]: ...
    def __hash__(self, /) -> int: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __new__(cls, /, persistent: bool, offset: int, bytes: int) -> IncrementalPlacement: ...
    def __repr__(self, /) -> str: ...
    @property
    def bytes(self, /) -> int:
        """
        Size in bytes.
        """
    @property
    def offset(self, /) -> int:
        """
        First byte in the arena.
        """
    @property
    def persistent(self, /) -> bool:
        """
        Whether the value is in the persistent arena, and not in the temporary arena.
        """

@final
class IncrementalPlanner:
    """
    Places the values in a graph whose sizes become known during a run.
    """

    def __new__(
        cls,
        /,
        values: Sequence[tuple[int, str]],
        nodes: Sequence[
            tuple[
                Sequence[int | None],
                Sequence[int | None],
                Sequence[int],
                Sequence[tuple[int, int, bool]],
            ]
        ],
        inputs: Sequence[int | None],
        outputs: Sequence[int | None],
        variables: Sequence[int] | None = None,
        *,
        mode: str = ...,
        alignment: int = ...,
        preserve_inputs: bool = ...,
        preserve_all: bool = ...,
    ) -> IncrementalPlanner:
        """
        Plan lifetimes; nothing is placed yet.
        """
    def acquire_temporary(self, /) -> None:
        """
        Get the temporary arena's memory back.
        """
    @property
    def arena_bytes(self, /) -> ArenaBytes:
        """
        High-water marks: temporary and persistent arena.
        """
    @property
    def buffer_bytes(self, /) -> ArenaBytes:
        """
        Memory of the temporary and the persistent arena.
        """
    def execute(self, /, start: int, stop: int) -> None:
        """
        Place the values that begin with nodes ``start`` up to, and without, ``stop``.

        Raises
        ------
        ArenaInUse
            If an arena would move while views are alive; the same call does the rest once the views
            are gone.
        """
    @staticmethod
    def from_graph(
        graph: Graph,
        *,
        mode: str = ...,
        alignment: int = ...,
        preserve_inputs: bool = ...,
        preserve_all: bool = ...,
    ) -> IncrementalPlanner:
        """
        Return a planner for the nodes of ``graph`` in execution order; values have the same
        indices, and each workspace, in the smallest size, is one more value.
        """
    def lease(self, /) -> Lease:
        """
        Reserve the arenas for one run, until the returned lease is released.

        Raises
        ------
        ArenaBusy
            If another run has the arenas.
        """
    def place(self, /, value: int) -> IncrementalPlacement | None:
        """
        Return the place of a value, or None if the value has no bytes in an arena, or the producer
        was not reached yet.
        """
    def plan(self, /) -> None:
        """
        Work lifetimes out again, after sizes or types have changed.
        """
    def read(self, /, value: int) -> bytes | None:
        """
        Return a copy of a value's bytes, or None where :meth:`place` does.
        """
    def release_temporary(self, /) -> None:
        """
        Free the temporary arena's memory, and keep the offsets.

        Raises
        ------
        ArenaInUse
            If views are alive.
        """
    def replace_graph(
        self,
        /,
        values: Sequence[tuple[int, str]],
        nodes: Sequence[
            tuple[
                Sequence[int | None],
                Sequence[int | None],
                Sequence[int],
                Sequence[tuple[int, int, bool]],
            ]
        ],
        inputs: Sequence[int | None],
        outputs: Sequence[int | None],
        variables: Sequence[int] | None = None,
    ) -> None:
        """
        Plan another graph in the same memory; nothing is placed yet. The tables are as for the
        constructor.
        """
    def reset(self, /) -> None:
        """
        Forget where everything is.
        """
    def reset_after(self, /, node: int) -> None:
        """
        Forget where values are that begin after ``node``.
        """
    def root(self, /, value: int) -> int:
        """
        Return the value whose bytes ``value`` has: itself, unless ``value`` shares.
        """
    def set_bytes(self, /, value: int, nbytes: int) -> None:
        """
        Change a value's size.
        """
    def set_kind(self, /, value: int, kind: str) -> None:
        """
        Change a value's owner.
        """
    def view(self, /, value: int) -> memoryview | None:
        """
        Return a writable view of a value's bytes, or None where :meth:`place` does.

        ``numpy.frombuffer(view, dtype)`` shares the memory. While a view is alive the arena neither
        moves nor is freed: calls that would have to do so raise ``ArenaInUse``. The bytes belong to
        the value while the value is live; planning gives the bytes to other values afterwards.
        """
    def write(self, /, value: int, data: bytes) -> None:
        """
        Overwrite the first bytes of a value.
        """

@final
class Lease:
    """
    The right of one run to use an arena; a context manager.
    """

    def __enter__(self, /) -> Lease: ...
    def __exit__(self, /, *_exception: object) -> None: ...
    def release(self, /) -> None:
        """
        Let others use the arena; more than once does no harm.
        """

@final
class Level:
    """
    The plan for one choice of techniques.
    """

    def __eq__(self, value: object, /) -> bool: ...
    def __getnewargs__(self, /) -> tuple[str, PlanPoint]: ...
    def __hash__(self, /) -> int: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __new__(cls, /, technique: str, point: PlanPoint) -> Level: ...
    def __repr__(self, /) -> str: ...
    @property
    def point(self, /) -> PlanPoint:
        """
        The plan's bytes and time.
        """
    @property
    def technique(self, /) -> str:
        """
        Name of the technique in which this choice differs from the compared choice.
        """

@final
class LineBuffer:
    """
    Memory for some rows of a value inside a step that runs strip by strip.
    """

    def __eq__(self, value: object, /) -> bool: ...
    def __getnewargs__(self, /) -> tuple[int, int, int]: ...
    def __hash__(self, /) -> int: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __new__(cls, /, value: int, offset: int, rows: int) -> LineBuffer: ...
    def __repr__(self, /) -> str: ...
    @property
    def offset(self, /) -> int:
        """
        First byte in the first workspace of the step's last node.
        """
    @property
    def rows(self, /) -> int:
        """
        Row count in the buffer.
        """
    @property
    def value(self, /) -> int:
        """
        Value index.
        """

@final
class Live:
    """
    Steps ``start`` up to, and without, ``end``.

    Examples
    --------
    >>> import arenaplan as ap
    >>> live = ap.Live(2, 5)
    >>> live, live.end - live.start
    (Live(start=2, end=5), 3)
    """

    def __eq__(self, value: object, /) -> bool: ...
    def __getnewargs__(self, /) -> tuple[int, int]: ...
    def __hash__(self, /) -> int: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __new__(cls, /, start: int, end: int) -> Live: ...
    def __repr__(self, /) -> str: ...
    @property
    def end(self, /) -> int:
        """
        First step after the last live step.
        """
    @property
    def start(self, /) -> int:
        """
        First step.
        """

@final
class Model:
    """
    The graphs and plans of a model for one or several shapes.
    """

    def __len__(self, /) -> int: ...
    def __new__(
        cls, /, name: str, dims: Sequence[str], shapes: Iterator[tuple[Sequence[int], object, Plan]]
    ) -> Model:
        """
        Collect shapes: for each shape a size per dimension in ``dims``, the graph, and a plan.
        """
    @property
    def arena_bytes(self, /) -> int:
        """
        Arena bytes that suffice for every shape.
        """
    @property
    def dims(self, /) -> list[tuple[str, list[int]]]:
        """
        Variable dimension names, each with its sizes.
        """
    def find(self, /, sizes: Sequence[tuple[str, int]], padded: bool) -> int:
        """
        Return the index of the shape for sizes by name.
        """
    @staticmethod
    def from_json(text: str | bytes) -> Model:
        """
        Return the model in a JSON text, after checking every plan.
        """
    def graph(self, /, sizes: Sequence[tuple[str, int]]) -> Graph:
        """
        Return a shape's graph.
        """
    @staticmethod
    def load(path: str | PathLike[str]) -> Model:
        """
        Read a model from a file, and check every plan.
        """
    @property
    def name(self, /) -> str:
        """
        Model name.
        """
    def plan(self, /, sizes: Sequence[tuple[str, int]]) -> Plan:
        """
        Return a shape's plan.
        """
    def save(self, /, path: str | PathLike[str]) -> None:
        """
        Write the model to a file, which is replaced at once or unchanged; a device or a pipe is
        written into.
        """
    @property
    def shapes(self, /) -> list[tuple[list[int], int]]:
        """
        For each shape the size by dimension, and the needed bytes.
        """
    def to_json(self, /) -> str:
        """
        Return the model as JSON text.
        """

@final
class MoveCost:
    """
    The move cost per run: for each value the bytes that nodes read and write, times the space's
    cost per byte.
    """

    def __eq__(self, value: object, /) -> bool: ...
    def __getnewargs__(self, /) -> tuple[int, int]: ...
    def __hash__(self, /) -> int: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __new__(cls, /, cost: int, lower_bound: int) -> MoveCost: ...
    def __repr__(self, /) -> str: ...
    @property
    def cost(self, /) -> int:
        """
        The plan's cost.
        """
    @property
    def lower_bound(self, /) -> int:
        """
        Lower bound of the cost for any choice of spaces.
        """

@final
class Packing:
    """
    Offsets of buffers, with a proof of the peak.
    """

    def __len__(self, /) -> int: ...
    def __repr__(self, /) -> str: ...
    def _repr_html_(self, /) -> Any:
        """
        Return a drawing of the packing as HTML, for notebooks.
        """
    @property
    def buffer_spaces(self, /) -> list[int]:
        """
        For each buffer: index of the space.
        """
    @property
    def interrupted(self, /) -> bool:
        """
        Whether the search was ended by Ctrl-C.
        """
    @property
    def lower_bound(self, /) -> int:
        """
        Bytes that the buffers need at any offsets: proven.
        """
    @property
    def names(self, /) -> list[str] | None:
        """
        ndarray[Any, Any] names, if read from CSV.
        """
    @property
    def nodes(self, /) -> int:
        """
        Visited search nodes: the unit of ``node_limit``.
        """
    @property
    def offsets(self, /) -> list[int]:
        """
        Every buffer's first byte.
        """
    @property
    def peak(self, /) -> int:
        """
        Bytes that the buffers need together at these offsets.
        """
    @property
    def rectangles(self, /) -> list[tuple[int, int, int, int, int, int]]:
        """
        For each rectangle of bytes and steps that a buffer needs: the buffer, the space, the first
        byte and the byte behind the last, the first step and the step behind the last.
        """
    @property
    def seconds(self, /) -> float:
        """
        Search time in seconds.
        """
    @property
    def spaces(self, /) -> list[tuple[int, int, str]]:
        """
        Peak, lower bound and status of each space, in order.
        """
    @property
    def stages(self, /) -> list[dict[str, Any]]:
        """
        Every improvement: ``stage``, ``seconds``, ``peak``, ``lower_bound`` and ``nodes``.
        """
    @property
    def status(self, /) -> str:
        """
        Status of ``peak``: ``"optimal"``, ``"feasible"``, ``"infeasible"`` or ``"unknown"``.
        """
    def to_csv(self, /) -> str:
        """
        Return the buffers and offsets as CSV.

        Raises
        ------
        ValueError
            If the buffers did not come from CSV, and have no names.
        """

@final
class Paging:
    """
    A slow memory that values are copied to and back from.

    Examples
    --------
    >>> import arenaplan as ap
    >>> ap.Paging("host", cost=480).capacity is None
    True
    """

    def __new__(cls, /, space: str, cost: int, capacity: int | None = None) -> Paging: ...
    def __repr__(self, /) -> str: ...
    @property
    def capacity(self, /) -> int | None:
        """
        Capacity in bytes; None if unlimited.
        """
    @property
    def cost(self, /) -> int:
        """
        Cost to copy one byte in one direction, in the unit of node costs.
        """
    @property
    def space(self, /) -> str:
        """
        Memory name.
        """

@final
class PlacedWorkspace:
    """
    The place of a scratch buffer for one step.
    """

    def __eq__(self, value: object, /) -> bool: ...
    def __getnewargs__(self, /) -> tuple[int, int, int, int, int, int, Live]: ...
    def __hash__(self, /) -> int: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __new__(
        cls, /, node: int, slot: int, choice: int, space: int, offset: int, bytes: int, live: Live
    ) -> PlacedWorkspace: ...
    def __repr__(self, /) -> str: ...
    @property
    def bytes(self, /) -> int:
        """
        Size in bytes.
        """
    @property
    def choice(self, /) -> int:
        """
        Size index among the workspace's choices.
        """
    @property
    def live(self, /) -> Live:
        """
        The node's step, as a range.
        """
    @property
    def node(self, /) -> int:
        """
        Node index; of nodes that run as one, the last.
        """
    @property
    def offset(self, /) -> int:
        """
        First byte in the space.
        """
    @property
    def slot(self, /) -> int:
        """
        Position among the node's workspaces.
        """
    @property
    def space(self, /) -> int:
        """
        Space index in ``plan.spaces``.
        """

@final
class Placement:
    """
    A value's place.

    Examples
    --------
    >>> import arenaplan as ap
    >>> graph = ap.Graph()
    >>> x = graph.input("x", (64,))
    >>> (y,) = graph.node("Conv", [x], [("y", (64,), "float32")])
    >>> graph.output(y)
    >>> plan = ap.plan(graph)
    >>> plan["x"].bytes, plan["x"].live
    (256, Live(start=0, end=1))
    """

    def __eq__(self, value: object, /) -> bool: ...
    def __getnewargs__(self, /) -> tuple[int, int, int, Live]: ...
    def __hash__(self, /) -> int: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __new__(cls, /, space: int, offset: int, bytes: int, live: Live) -> Placement: ...
    def __repr__(self, /) -> str: ...
    @property
    def bytes(self, /) -> int:
        """
        Size in bytes.
        """
    @property
    def live(self, /) -> Live:
        """
        Steps in which the bytes are needed.
        """
    @property
    def offset(self, /) -> int:
        """
        First byte in the space.
        """
    def same_bytes(self, /, other: Placement) -> bool:
        """
        Whether another value has exactly the same bytes in the same space, at whatever time.
        """
    @property
    def space(self, /) -> int:
        """
        Space index in ``plan.spaces``; from ``len(plan.spaces)`` on, numbers count
        ``plan.caller_buffers``.
        """

@final
class Plan:
    """
    The place of every value of a graph, in one arena per memory.

    A plan maps the name of each placed value to a :class:`Placement`: ``plan[name]``, ``name in
    plan``, ``len(plan)``, ``for name in plan``. Constants have no place.

    Examples
    --------
    >>> import arenaplan as ap
    >>> graph = ap.Graph()
    >>> x = graph.input("x", (64,))
    >>> (y,) = graph.node("Conv", [x], [("y", (64,), "float32")])
    >>> graph.output(y)
    >>> plan = ap.plan(graph)
    >>> len(plan), "x" in plan, "w" in plan
    (2, True, False)
    >>> plan["y"].bytes, plan.spaces[0].arena_bytes
    (256, 512)
    """

    def __contains__(self, name: Any, /) -> bool:
        """
        Whether a value called ``name`` has a place.
        """
    def __getitem__(self, name: str, /) -> Placement:
        """
        Return the place for the value called ``name``.

        Raises
        ------
        UndefinedValue
            If no value with this name has a place; constants have no place. The exception is a
            ``KeyError``.
        """
    def __iter__(self, /) -> Iterator[str]:
        """
        Iterate over the names of the values that have a place, in graph order.
        """
    def __len__(self, /) -> int:
        """
        Number of values that have a place.
        """
    def __reduce__(self, /) -> tuple[Any, tuple[bytes]]: ...
    def __repr__(self, /) -> str: ...
    def _repr_html_(self, /) -> Any:
        """
        Return a drawing of the plan as HTML, for notebooks.
        """
    @property
    def alignment(self, /) -> int:
        """
        Offset alignment in bytes.
        """
    @property
    def arena_bytes(self, /) -> int:
        """
        Total arena bytes.
        """
    @property
    def bases(self, /) -> list[int]:
        """
        Start of each space's arena in the memory that :meth:`commit` allocates.
        """
    @property
    def bytes_moved(self, /) -> list[int | None]:
        """
        For each value in the graph the bytes that nodes read and write per run, or None for a value
        without a place.
        """
    @property
    def caller_buffers(self, /) -> list[CallerBuffer]:
        """
        The caller's buffers, in value order.

        The buffers are spaces too, behind the last space in ``spaces``.
        """
    def check(self, /, graph: Any) -> Verdict:
        """
        Raise unless the plan is valid for ``graph``, and return the proofs of the plan's claims.

        Raises
        ------
        PlanMismatch
            If the plan was made for another graph.
        PlanOverlap, PlanOutOfBounds, PlanMisaligned, PlanCorrupt
            If the plan would corrupt bytes, contradicts itself, or makes a false claim.
        """
    def check_hazards(self, /, graph: Any, hazards: Hazards) -> None:
        """
        Raise unless the hazards are exactly the plan's hazards.

        Raises
        ------
        HazardMismatch
            If two steps that use the same bytes are not ordered, or an edge is superfluous.
        PlanMismatch, PlanOverlap, PlanOutOfBounds, PlanMisaligned, PlanCorrupt
            As :meth:`check`.
        """
    def check_target(self, /, target: Target) -> None:
        """
        Raise unless ``target`` can run the plan, which may have been made for another target.

        Call :meth:`check` first: this method believes the sizes in the plan.

        Raises
        ------
        TargetMismatch
            For the first step or option that the target does not honor.
        """
    def commit(self, /, space: str | None = None) -> Arena:
        """
        Allocate the arenas for all spaces, side by side, or only the arena for ``space``.
        """
    @property
    def continued(self, /) -> list[int]:
        """
        The node of each step that continues the step before, in step order.

        A runner performs both in one call: the result replaces the only value that the step before
        made, which nothing else reads.
        """
    @property
    def covers(self, /) -> Covers:
        """
        The part of the model that was planned, as stated by the graph.
        """
    @property
    def digest(self, /) -> str:
        """
        Planned graph digest.
        """
    @property
    def estimate(self, /) -> Estimate | None:
        """
        The estimated times of one run; None if time was not weighed against bytes.
        """
    @property
    def extra_bound(self, /) -> float:
        """
        Proven lower bound of ``extra_cost`` over all schedules with as many bytes that run each
        node by itself.
        """
    @property
    def extra_cost(self, /) -> float:
        """
        Work of the repeated nodes and the copies, as a fraction of the work if each node runs once.
        """
    def fits(self, /) -> None:
        """
        Raise unless every space holds its planned bytes.
        """
    @property
    def floor(self, /) -> int | None:
        """
        Bytes that no order of any steps that were tried goes below; None if the caller chose
        the steps.
        """
    @staticmethod
    def from_json(text: str | bytes) -> Plan:
        """
        Return the plan that JSON text holds.
        """
    @property
    def gap(self, /) -> float:
        """
        Distance from ``lower_bound`` to ``arena_bytes``, as a fraction of the former.
        """
    def hazards(self, /, graph: Any) -> Hazards:
        """
        Return the dependencies between the steps: a runner that respects them may run all other
        steps in any order, and at the same time.

        Raises
        ------
        PlanMismatch, PlanOverlap, PlanOutOfBounds, PlanMisaligned, PlanCorrupt
            As :meth:`check`.
        """
    @property
    def inner(self, /) -> list[tuple[int, int]]:
        """
        Nodes by index that have less inner memory than in the graph, with the bytes; empty unless
        there is a :attr:`schedule`.
        """
    def live_at(self, /, step: int) -> list[int]:
        """
        Return the indices of the values that are live in an arena at ``step``, by offset.
        """
    @property
    def live_bytes(self, /) -> list[int]:
        """
        Live bytes in all spaces at every step; shared bytes count once.
        """
    def live_bytes_in(self, /, space: int) -> list[int]:
        """
        Return how many bytes of the space at position ``space`` are live at every step.
        """
    @staticmethod
    def load(path: str | PathLike[str]) -> Plan:
        """
        Read a plan from a file.
        """
    @property
    def lower_bound(self, /) -> int:
        """
        Bytes that no plan with this order and this sharing can go below.
        """
    @property
    def model(self, /) -> str:
        """
        Model name.
        """
    @property
    def move_cost(self, /) -> MoveCost | None:
        """
        The move cost per run, or None if the plan did not choose the space of each value.
        """
    @property
    def naive_bytes(self, /) -> int | None:
        """
        Bytes if every value had separate memory; None if more than any machine has.
        """
    @property
    def options(self, /) -> dict[str, Any]:
        """
        The options that the plan was made with.
        """
    @property
    def order(self, /) -> list[int]:
        """
        Node indices by first run.
        """
    @property
    def order_search(self, /) -> str | None:
        """
        Scope of the order: ``"given"`` without a search, ``"complete"`` if no other order of these
        steps has fewer live bytes at the highest step, ``"beam"`` for the best of the tried orders;
        None if the caller chose the steps.
        """
    @property
    def overlapped(self, /) -> list[int]:
        """
        The nodes whose output overlaps an input, by index; of a fused group, the last node.
        """
    @property
    def paging(self, /) -> Paging | None:
        """
        The slow memory that values are copied to, which is the last of :attr:`spaces`; None if no
        value is.
        """
    @property
    def peak_step(self, /) -> int:
        """
        First step at which most bytes in all spaces are live.
        """
    @property
    def placements(self, /) -> list[Placement | None]:
        """
        For each value in the graph the place, or None for a value without a place, such as a
        constant.

        ``plan[name]`` returns a single place by value name.
        """
    @property
    def recompute_floor(self, /) -> int | None:
        """
        Lower bound of the bytes over all schedules that run each node by itself; None if each node
        in the plan runs once.
        """
    @property
    def repeated(self, /) -> list[int]:
        """
        Indices of the nodes that run in several steps: cheap nodes, whose small inputs are kept
        instead of a large output.
        """
    def resized(self, /, graph: Any) -> Plan:
        """
        Return a plan of ``graph`` that has the offsets of this plan.

        The graph has the same nodes and values, with other sizes. Each workspace gets the cheapest
        size that fits into the planned bytes, or moves to where its step leaves room.

        Raises
        ------
        PlanMismatch
            If the graph has other nodes or values.
        PlanOverlap, PlanOutOfBounds, PlanMisaligned, PlanCorrupt
            If the offsets do not serve these sizes.
        """
    def save(self, /, path: str | PathLike[str]) -> None:
        """
        Write the plan to a file, which is replaced at once or unchanged; a device or a pipe is
        written into.
        """
    @property
    def schedule(self, /) -> list[int | Transfer] | None:
        """
        The executions of a plan in which nodes run again: node indices in the graph without
        repetitions, and copied values as :class:`Transfer`. A reader reads the latest value that
        was made before. None if each node runs once and no value is copied.
        """
    @property
    def shares(self, /) -> list[Share]:
        """
        The values in each step that share bytes, in step order.

        A share that names no operand is left out; :meth:`check` refuses such a plan.
        """
    @property
    def skipped(self, /) -> list[str]:
        """
        Techniques that were asked for and not tried: because the graph is large, nodes may run in any
        order, the effort is small, or time was up.
        """
    def space_name(self, /, space: int) -> str:
        """
        Return the name of the space at position ``space``; the name of a caller's buffer begins
        with ``"caller:"``.
        """
    @property
    def spaces(self, /) -> list[PlannedSpace]:
        """
        The memories, each with its arena.
        """
    @property
    def status(self, /) -> str:
        """
        Status of ``arena_bytes``: ``"optimal"``, ``"feasible"``, ``"infeasible"`` or
        ``"unknown"``.
        """
    def step_operands(self, /, node: int) -> StepOperands:
        """
        Return the values that a node's step reads and writes.

        Raises
        ------
        UndefinedValue
            If there is no such node.
        """
    @property
    def steps(self, /) -> list[list[int]]:
        """
        For each step the indices of the nodes that run as one, in order; nearly always a single
        node.
        """
    @property
    def strips(self, /) -> list[Strips]:
        """
        The strips of each step that runs strip by strip, in step order.
        """
    @property
    def target(self, /) -> Target:
        """
        The runner that the plan is for.
        """
    @property
    def timetable(self, /) -> Timetable | None:
        """
        When several workers run the steps; None if the plan is not for several.
        """
    def to_json(self, /) -> str:
        """
        Return the plan as JSON text.
        """
    def to_pandas(self, /) -> Any:
        """
        Return the places of values and workspaces as a pandas data frame.

        Columns are ``name``, ``kind``, ``space``, ``offset``, ``bytes``, ``start`` and ``stop``
        (live steps), ``read_by`` and ``written_by`` (step numbers), in graph order.

        Raises
        ------
        ImportError
            If pandas is not installed.
        """
    @property
    def workspaces(self, /) -> list[PlacedWorkspace]:
        """
        Scratch buffers of steps, by node and slot.
        """

@final
class PlanPoint:
    """
    A plan's bytes and time.
    """

    def __eq__(self, value: object, /) -> bool: ...
    def __getnewargs__(self, /) -> tuple[int, int]: ...
    def __hash__(self, /) -> int: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __new__(cls, /, bytes: int, nanoseconds: int) -> PlanPoint: ...
    def __repr__(self, /) -> str: ...
    @property
    def bytes(self, /) -> int:
        """
        Total arena bytes.
        """
    @property
    def nanoseconds(self, /) -> int:
        """
        Estimated nanoseconds per run; 0 without a backend.
        """

@final
class PlannedSpace:
    """
    A memory with its arena's size.
    """

    def __eq__(self, value: object, /) -> bool: ...
    def __getnewargs__(self, /) -> tuple[str, int, int, str, int, int | None, int]: ...
    def __hash__(self, /) -> int: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __new__(
        cls,
        /,
        name: str,
        arena_bytes: int,
        lower_bound: int,
        status: str,
        alignment: int,
        capacity: int | None,
        cost: int,
    ) -> PlannedSpace: ...
    def __repr__(self, /) -> str: ...
    @property
    def alignment(self, /) -> int:
        """
        Alignment for the arena's first byte.
        """
    @property
    def arena_bytes(self, /) -> int:
        """
        Arena size in bytes.
        """
    @property
    def capacity(self, /) -> int | None:
        """
        Bytes that the arena may have, or None if unlimited.
        """
    @property
    def cost(self, /) -> int:
        """
        Cost per byte that a node reads or writes, relative to other spaces.
        """
    @property
    def lower_bound(self, /) -> int:
        """
        Bytes that these values need in this space at any offsets.
        """
    @property
    def name(self, /) -> str:
        """
        Space name.
        """
    @property
    def status(self, /) -> str:
        """
        The proven status of ``arena_bytes``: ``"optimal"``, ``"feasible"``, ``"infeasible"`` or
        ``"unknown"``.
        """

@final
class Queue:
    """
    Functions that run in the background, each after its dependencies.

    Functions are pushed in an order, the serial order, with the variables that each function reads
    and writes. A function waits for earlier functions that write a variable named by the function,
    and for earlier functions that read a variable that the function writes; all others may run
    before or at the same time. So every function sees the same values as in a serial run. Ready
    functions start in push order.

    A function that raises leaves the exception in the variables that the function writes. Functions
    that read or write such a variable are skipped, and hand the exception on; :meth:`wait` and
    :meth:`get` raise the exception, until :meth:`restore` gives the variable another value.

    A variable of which no handle and no operation is left takes no memory.

    Parameters
    ----------
    workers : int, default 4
        Thread count; with 0, functions run in :meth:`push`.

    Raises
    ------
    InvalidOption
        If there are more than 256 workers.

    Examples
    --------
    >>> import arenaplan as ap
    >>> with ap.run.Queue(workers=2) as queue:
    ...     a, b = queue.variable(1), queue.variable(0)
    ...     queue.push(lambda a, b: a + 1, reads=[a], writes=[b])
    ...     queue.push(lambda a: 10 * a, writes=[a])
    ...     queue.get(a), queue.get(b)
    (10, 2)
    """

    def __enter__(self, /) -> Queue: ...
    def __exit__(self, /, *_exception: object) -> None: ...
    def __new__(cls, /, workers: int = ...) -> Queue: ...
    def __repr__(self, /) -> str: ...
    def close(self, /) -> None:
        """
        Wait for all functions, and end the threads.
        """
    def get(self, /, variable: Variable) -> Any:
        """
        Wait for a variable, and return the value that the functions pushed before leave.

        Raises
        ------
        Exception, QueueState
            As :meth:`wait`.
        """
    def push(
        self,
        /,
        function: Any,
        reads: Sequence[Variable] = ...,
        writes: Sequence[Variable] = ...,
        name: str | None = None,
    ) -> None:
        """
        Push a function, and do not wait for the function.

        Parameters
        ----------
        function : callable
            Called with the values of ``reads``, then those of ``writes``. A result other than None
            is the new value of the variable in ``writes``; if there are several, the result is a
            tuple with a value for each. A result that is a ``concurrent.futures.Future`` completes
            the function
            later: no thread of the queue waits for the future, and the future's result is the
                result.
        reads, writes : iterable of Variable
            Each variable is named once; a variable that is read and written is in ``writes``.
        name : str, optional
            For a note of exceptions; default: the name of the function, if it has one.

        Raises
        ------
        QueueState
            If a variable is named twice or belongs to another queue, or the queue is closed.
        """
    def restore(self, /, variable: Variable, value: Any) -> None:
        """
        Push an operation that gives a variable another value, and clears the exception.
        """
    def variable(self, /, value: Any | None = None) -> Variable:
        """
        Return a new variable, at version 0.
        """
    @property
    def variables(self, /) -> int:
        """
        Number of variables that a handle or a function names.
        """
    def version(self, /, variable: Variable) -> int:
        """
        Return how many functions that write a variable have ended.
        """
    def wait(self, /, variable: Variable | None = None) -> None:
        """
        Wait for the functions that were pushed before and write ``variable``, or for all functions.

        Raises
        ------
        Exception
            The exception of the failed function; without a variable, of the first function that
            failed since the last such call.
        QueueState
            In a function in the queue, which would wait for itself, or if the queue is closed.
        """

@final
class RecomputeCurve:
    """
    Arena bytes over extra work.
    """

    def _repr_html_(self, /) -> Any:
        """
        Return the points as an HTML table, for notebooks.
        """
    @property
    def cost(self, /) -> int:
        """
        Cost if each node runs once.
        """
    @property
    def floor(self, /) -> int:
        """
        Lower bound of the bytes over all schedules that run each node by itself.
        """
    @property
    def points(self, /) -> list[RecomputePoint]:
        """
        Points in descending order by bytes and ascending order by work; the first point repeats
        nothing.
        """

@final
class RecomputePoint:
    """
    A point on a curve: bytes over extra work.
    """

    @property
    def arena_bytes(self, /) -> int:
        """
        Arena bytes, without the slow memory.
        """
    @property
    def bound(self, /) -> float:
        """
        Proven lower bound of the extra work over all schedules in so many bytes.
        """
    @property
    def extra(self, /) -> float:
        """
        Extra work as a fraction of the work if each node runs once.
        """
    @property
    def extra_bound(self, /) -> int:
        """
        The bound in cost units.
        """
    @property
    def extra_cost(self, /) -> int:
        """
        Extra work in cost units.
        """
    @property
    def plan(self, /) -> Plan:
        """
        The plan, without scratch memory.
        """

@final
class RowsInPlace:
    """
    A value inside such a step whose rows are made in a later value's rows.
    """

    def __eq__(self, value: object, /) -> bool: ...
    def __getnewargs__(self, /) -> tuple[int, int]: ...
    def __hash__(self, /) -> int: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __new__(cls, /, value: int, of: int) -> RowsInPlace: ...
    def __repr__(self, /) -> str: ...
    @property
    def of(self, /) -> int:
        """
        Index of the value that takes the rows over.
        """
    @property
    def value(self, /) -> int:
        """
        Value index.
        """

@final
class Share:
    """
    An operand and a result of a node that share bytes.
    """

    def __eq__(self, value: object, /) -> bool: ...
    def __getnewargs__(self, /) -> tuple[int, str, int, int]: ...
    def __hash__(self, /) -> int: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __new__(cls, /, node: int, rule: str, source: int, result: int) -> Share: ...
    def __repr__(self, /) -> str: ...
    @property
    def node(self, /) -> int:
        """
        Node index; of nodes that run as one, the last.
        """
    @property
    def result(self, /) -> int:
        """
        Index of the value that the step writes.
        """
    @property
    def rule(self, /) -> str:
        """
        The relation: ``"view"``, ``"in-place"`` or ``"overlap"``.
        """
    @property
    def source(self, /) -> int:
        """
        Index of the value that the step reads.
        """

@final
class SharedPlan:
    """
    Plans for several graphs that share one arena.
    """

    def __repr__(self, /) -> str: ...
    @property
    def alignment(self, /) -> int:
        """
        Alignment for the arena's first address.
        """
    @property
    def arena_bytes(self, /) -> int:
        """
        Bytes in the shared arena.
        """
    @property
    def bases(self, /) -> list[int]:
        """
        By graph, the first byte of the plan in the shared arena.
        """
    @property
    def capacity(self, /) -> int | None:
        """
        Bytes that the arena may have, or None if unlimited.
        """
    def check(self, /, graphs: Sequence[Any]) -> SharedVerdict:
        """
        Raise unless the plans are valid for ``graphs``, and together in one arena.

        Raises
        ------
        PlanMismatch
            If the plans were made for other graphs.
        PlanOverlap, PlanOutOfBounds, PlanMisaligned, PlanCorrupt
            If the plans would corrupt bytes, or contradict themselves.
        """
    def commit(self, /) -> Arena:
        """
        Allocate the shared arena.
        """
    def fits(self, /) -> None:
        """
        Raise unless the arena fits the capacity.
        """
    @staticmethod
    def from_json(text: str | bytes) -> SharedPlan:
        """
        Return the plans that JSON text holds.
        """
    @staticmethod
    def load(path: str | PathLike[str]) -> SharedPlan:
        """
        Read plans from a file.
        """
    @property
    def lower_bound(self, /) -> int:
        """
        Bytes that no plans with these orders and this sharing can go below.
        """
    @property
    def plans(self, /) -> list[Plan]:
        """
        The plan by graph; offsets count from the graph's base.
        """
    def save(self, /, path: str | PathLike[str]) -> None:
        """
        Write the plans to a file, which is replaced at once or unchanged; a device or a pipe is
        written into.
        """
    @property
    def status(self, /) -> str:
        """
        Status of ``arena_bytes``: ``"optimal"``, ``"feasible"``, ``"infeasible"`` or
        ``"unknown"``.
        """
    def to_json(self, /) -> str:
        """
        Return the plans as JSON text.
        """
    @property
    def together(self, /) -> str:
        """
        Rule for the graphs' runs: ``"never-together"`` or ``"concurrent"``.
        """

@final
class SharedVerdict:
    """
    Check result about the claims of valid plans that share one arena.
    """

    def __eq__(self, value: object, /) -> bool: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __repr__(self, /) -> str: ...
    @property
    def lower_bound(self, /) -> str:
        """
        Whether the shared plan's ``lower_bound`` was ``"verified"`` or only ``"claimed"``.
        """
    @property
    def max_live(self, /) -> int:
        """
        The bytes that are live at once, as counted by the checker: no offsets need fewer.
        """
    @property
    def members(self, /) -> list[Verdict]:
        """
        Each plan's own verdict.
        """
    @property
    def status(self, /) -> str:
        """
        Whether the shared plan's ``status`` was ``"verified"`` or only ``"claimed"``.
        """

@final
class SimpleArena:
    """
    An arena that is filled during planning, as TensorFlow Lite's arena was in 2019.

    Spans are handed out before there is memory; :meth:`commit` gets the memory, and keeps the
    content if the memory has to grow. An empty span is at offset 0.
    """

    def __new__(cls, /, alignment: int = ...) -> SimpleArena:
        """
        Make an empty arena whose first byte will be at a multiple of ``alignment``.
        """
    def allocate(self, /, alignment: int, nbytes: int) -> int:
        """
        Return the offset of ``nbytes`` bytes: in the shortest free stretch that holds the bytes, or
        at the end of the arena.

        Raises
        ------
        InvalidAlignment
            If ``alignment`` is stricter than the arena's.
        SizeOverflow
            If no machine can address the arena then.
        """
    @property
    def buffer_bytes(self, /) -> int:
        """
        Memory size in bytes.
        """
    def clear(self, /) -> None:
        """
        Take everything back, and keep the memory.
        """
    def commit(self, /) -> bool:
        """
        Get memory for all spans ever handed out; return whether the bytes moved.

        Raises
        ------
        ArenaCommitError
            If there is not enough memory; the arena is then unchanged.
        ArenaInUse
            If the memory would move while views are alive.
        """
    def deallocate(self, /, offset: int, nbytes: int) -> None:
        """
        Take back a result of :meth:`allocate`; empty spans repeatedly.

        Raises
        ------
        ArenaState
            If the span is not handed out.
        """
    @property
    def high_water(self, /) -> int:
        """
        End of the highest bytes that were handed out since the arena was empty.
        """
    def lease(self, /) -> Lease:
        """
        Reserve the arena for one run, until the returned lease is released.

        Raises
        ------
        ArenaBusy
            If another run has the arena.
        """
    def resolve(self, /, offset: int, nbytes: int) -> bytes | None:
        """
        Return a copy of some bytes, or None for no bytes.
        """
    def view(self, /, offset: int, nbytes: int) -> memoryview | None:
        """
        Return a writable view of some bytes, or None for no bytes.

        While the view is alive, :meth:`commit` does not move the memory.
        """
    def write(self, /, offset: int, data: bytes) -> None:
        """
        Overwrite the bytes from ``offset`` on.
        """

@final
class StepOperands:
    """
    The values that a step reads and writes, by index, with None for an operand left out.
    """

    def __eq__(self, value: object, /) -> bool: ...
    def __getnewargs__(self, /) -> tuple[list[int | None], list[int | None]]: ...
    def __hash__(self, /) -> int: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __new__(
        cls, /, inputs: Sequence[int | None], outputs: Sequence[int | None]
    ) -> StepOperands: ...
    def __repr__(self, /) -> str: ...
    @property
    def inputs(self, /) -> list[int | None]:
        """
        Values that the step reads, by position; for nodes that run as one, the values from
        outside, each value once.
        """
    @property
    def outputs(self, /) -> list[int | None]:
        """
        Values that the step writes, by position.
        """

@final
class StorageLayout:
    """
    Names, blocks and nodes of a planned graph, without memory.
    """

    def __new__(
        cls,
        /,
        entries: Sequence[tuple[str, Sequence[int], str, int, int]],
        inputs: Sequence[str],
        outputs: Sequence[str],
    ) -> StorageLayout:
        """
        Check values that no node makes; inputs and outputs by name.
        """
    def allocate(self, /, free: Sequence[tuple[int, int]]) -> list[tuple[int, int, int | Arena]]:
        """
        Return ``(storage id, device number, memory)`` for every block, the largest first; memory is
        a position in ``free``, which has ``(bytes, device number)`` for reusable blocks, or a new
        arena.
        """
    def check_input(self, /, name: str, dtype: str, shape: Sequence[int]) -> None:
        """
        Raise unless an input with this name, type and shape exists.
        """
    @property
    def entries(self, /) -> list[tuple[str, list[int], str, int, int]]:
        """
        ``(name, shape, dtype, storage id, device number)`` by value.
        """
    @staticmethod
    def from_json(text: str) -> StorageLayout:
        """
        Return the layout of a graph in a graph runtime's JSON form.
        """
    @staticmethod
    def from_plan(graph: Graph, plan: StoragePlan) -> StorageLayout:
        """
        Return the layout of ``graph`` under ``plan``.
        """
    @property
    def inputs(self, /) -> list[str]:
        """
        Value names that the caller supplies.
        """
    @property
    def nodes(
        self, /
    ) -> list[tuple[str, str, list[tuple[int, int, int]], dict[str, str], list[int]]]:
        """
        ``(op, name, inputs, attributes, after)`` by node, with inputs as ``(node, output,
        version)``.
        """
    @property
    def outputs(self, /) -> list[str]:
        """
        Value names that the caller receives.
        """
    def to_graph(self, /, name: str, parameters: Sequence[str]) -> Graph:
        """
        Return the graph that the layout was made for; values named in ``parameters`` are constants.
        """
    def to_json(self, /) -> str:
        """
        Return the JSON form for graph runtimes.
        """
    def with_attributes(self, /, attributes: Sequence[tuple[str, dict[str, str]]]) -> StorageLayout:
        """
        Return the layout with more attributes, for nodes by the name of the first result.
        """

@final
class StoragePlan:
    """
    Storage sharing: the blocks of memory that values share.
    """

    def __repr__(self, /) -> str: ...
    @property
    def allocated_bytes(self, /) -> int:
        """
        Bytes of all blocks except the caller's.
        """
    @property
    def blocks(self, /) -> list[Block]:
        """
        The blocks, by number.
        """
    @property
    def colors(self, /) -> list[int] | None:
        """
        Color by node; None with one color.
        """
    def decorate(
        self,
        /,
        graph: object,
        elementwise: Sequence[int] | None = None,
        *,
        assigns: dict[int, Assign] | None = None,
    ) -> StoragePlan:
        """
        Return the plan with blocks for inputs, constants and states, and with assignments tied to
        states.

        ``assigns`` is a result of :func:`arenaplan.classic.find_assigns`, for this graph or for the
        graph from which :func:`arenaplan.classic.order_mutations` made this graph. Without
        ``assigns``, assignments are found, where nodes in ``elementwise`` may write an assignment's
        state themselves; if that is None, the effects of the nodes decide.

        Raises
        ------
        InvalidOption
            If a value that a node makes has no block, or ``assigns`` is for another graph.
        """
    @property
    def in_place_index(self, /) -> list[int]:
        """
        Input whose block each value took over, by position; -1 none, -2 without readers.
        """
    @property
    def match_range(self, /) -> int:
        """
        Match range of the pass that was kept.
        """
    @property
    def not_allocated(self, /) -> int:
        """
        Count of results without storage.
        """
    @property
    def storage_ids(self, /) -> list[int]:
        """
        Block by value; -1 unassigned, -2 external, -3 dynamic.
        """
    def to_plan(self, /, graph: object, *, alignment: int) -> Plan:
        """
        Return the arena plan that has the blocks one behind the other, checked.
        """

@final
class Strips:
    """
    How the nodes of a step run strip by strip: see ``arenaplan::plan::Strips`` in Rust.

    Examples
    --------
    >>> import arenaplan as ap
    >>> graph = ap.Graph()
    >>> rows = ap.Window(0, 0, axis=2, extent=3, before=1)
    >>> last = graph.input("x", (1, 8, 64, 64))
    >>> for name in "ab":
    ...     (last,) = graph.node("Conv", [last], [(name, (1, 8, 64, 64), "float32")], windows=[rows])
    >>> graph.output(last)
    >>> strips = ap.Strips(1, 4, [ap.LineBuffer(1, 0, rows=6)], [])
    >>> plan = ap.plan(graph, target="ideal", steps=[[0, 1]], strips=[strips])
    >>> verdict = plan.check(graph)
    >>> plan.strips[0].buffers
    [LineBuffer(value=1, offset=0, rows=6)]
    """

    def __eq__(self, value: object, /) -> bool: ...
    def __getnewargs__(self, /) -> tuple[int, int, list[LineBuffer], list[RowsInPlace]]: ...
    def __hash__(self, /) -> int: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __new__(
        cls, /, node: int, rows: int, buffers: Sequence[LineBuffer], in_place: Sequence[RowsInPlace]
    ) -> Strips: ...
    def __repr__(self, /) -> str: ...
    @property
    def buffers(self, /) -> list[LineBuffer]:
        """
        The line buffers, in the order in which the values are made.
        """
    @property
    def in_place(self, /) -> list[RowsInPlace]:
        """
        Values that are made in another value's rows.
        """
    @property
    def node(self, /) -> int:
        """
        The step's last node index.
        """
    @property
    def rows(self, /) -> int:
        """
        Output rows that are made at once.
        """

@final
class Target:
    """
    A description of a program that runs plans.

    ``Target(name, techniques)`` describes another runner, which honors the listed techniques.
    :func:`arenaplan.targets` lists the known targets.

    Parameters
    ----------
    name : str
        A name that no known target has.
    techniques : list of str
        The techniques that the runner honors, by name.
    alignment : int, default 64
        Default offset alignment in bytes.
    scratch : {"graph", "runner", "nobody"}
        The origin of kernel scratch memory: nodes declare the memory before planning, the runner
        adds the memory by itself, or there is none.
    caller_memory : bool
        Whether inputs and outputs may be in the caller's memory.
    several_spaces : bool
        Whether values may be in several spaces.
    """

    def __eq__(self, value: object, /) -> bool: ...
    def __hash__(self, /) -> int: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __new__(
        cls,
        /,
        name: str,
        techniques: Sequence[str],
        *,
        alignment: int = ...,
        scratch: str = ...,
        caller_memory: bool = ...,
        several_spaces: bool = ...,
    ) -> Target: ...
    def __repr__(self, /) -> str: ...
    @property
    def alignment(self, /) -> int:
        """
        Default offset alignment in bytes.
        """
    @property
    def caller_memory(self, /) -> bool:
        """
        Whether inputs and outputs may be in the caller's memory.
        """
    @property
    def early_writes(self, /) -> bool:
        """
        Whether a kernel writes elements of a piece before it has read all of the piece's inputs.
        """
    @property
    def fixed(self, /) -> str:
        """
        Origin of the runner's own structures: ``"runner"``, or ``"nobody"`` without such
        structures.
        """
    @property
    def granularity(self, /) -> str:
        """
        The unit that the runner executes at a time: ``"node"``, ``"group"`` or ``"tile"``.
        """
    @staticmethod
    def known(name: str) -> Target:
        """
        Return the known target with this name.

        Raises
        ------
        InvalidOption
            If the name is unknown; the message lists the known names.
        """
    @property
    def name(self, /) -> str:
        """
        Target name, with the kernels if named: ``"tflm:reference"``.
        """
    @property
    def offset_unit(self, /) -> int:
        """
        Unit of offsets in bytes: every alignment must be a multiple.
        """
    @property
    def runtime(self, /) -> str:
        """
        Name without the kernels: ``"tflm"``.
        """
    @property
    def scratch(self, /) -> str:
        """
        Origin of kernel scratch memory: ``"graph"``, ``"runner"`` or ``"nobody"``.
        """
    @property
    def several_spaces(self, /) -> bool:
        """
        Whether values may be in several spaces.
        """
    @property
    def strip_axis(self, /) -> int | None:
        """
        Dimension of the rows that are all that the runner streams, strip by strip; ``None`` if the
        runner streams any pieces.
        """
    @property
    def summary(self, /) -> str:
        """
        One line about the runner; empty for a custom target.
        """
    @property
    def techniques(self, /) -> list[str]:
        """
        The techniques that the runner honors, by name.
        """

@final
class ThreadTeam:
    """
    Threads that divide compiled kernels.

    Kernels that are made in a block (``with team:``) by the thread that entered the block are
    divided, if long enough; the kernels keep the threads alive. Results are the same, bit for bit.

    Parameters
    ----------
    threads : int
        Thread count, the caller included.
    """

    def __enter__(self, /) -> ThreadTeam: ...
    def __exit__(self, /, *_exception: object) -> None: ...
    def __new__(cls, /, threads: int) -> ThreadTeam: ...
    def __repr__(self, /) -> str: ...
    @property
    def scratch_bytes(self, /) -> int:
        """
        Scratch bytes of all threads except the caller's.
        """
    @property
    def threads(self, /) -> int:
        """
        Thread count, the caller included.
        """

@final
class Timetable:
    """
    The times at which several workers run a plan's steps.
    """

    def __eq__(self, value: object, /) -> bool: ...
    def __getnewargs__(self, /) -> tuple[int, list[int], list[int]]: ...
    def __hash__(self, /) -> int: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __new__(cls, /, workers: int, costs: Sequence[int], starts: Sequence[int]) -> Timetable: ...
    def __repr__(self, /) -> str: ...
    @property
    def costs(self, /) -> list[int]:
        """
        Time by step: the bytes that the nodes touch, unless other costs were given.
        """
    @property
    def parallelism(self, /) -> float:
        """
        How many workers are busy on average.
        """
    @property
    def span(self, /) -> int:
        """
        Time at which the last step ends.
        """
    @property
    def starts(self, /) -> list[int]:
        """
        Start time by step.
        """
    @property
    def work(self, /) -> int:
        """
        Serial time.
        """
    @property
    def workers(self, /) -> int:
        """
        Worker count.
        """

@final
class Transfer:
    """
    A value that is copied to a slow memory, or back, as an entry in a schedule.

    Examples
    --------
    >>> import arenaplan as ap
    >>> ap.Transfer(3, "out")
    Transfer(value=3, way='out')
    """

    def __eq__(self, value: object, /) -> bool: ...
    def __hash__(self, /) -> int: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __new__(cls, /, value: int, way: str) -> Transfer: ...
    def __repr__(self, /) -> str: ...
    @property
    def value(self, /) -> int:
        """
        Value index.
        """
    @property
    def way(self, /) -> str:
        """
        ``"out"`` to the slow memory, or ``"in"``.
        """

@final
class Variable:
    """
    A value that operations in a queue read and write, from :meth:`Queue.variable`.
    """

    def __repr__(self, /) -> str: ...

@final
class Verdict:
    """
    Check result about the claims of a valid plan.

    Offsets, live ranges, sharing and sizes in a valid plan are always verified. A claim about *all*
    plans, such as a lower bound, is ``"verified"`` if the checker derived the claim from the graph,
    and ``"claimed"`` if only the plan states the claim and nothing contradicts it.
    """

    def __eq__(self, value: object, /) -> bool: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __repr__(self, /) -> str: ...
    @property
    def chose_spaces(self, /) -> bool:
        """
        Whether capacities, alignments and costs of the spaces come from the plan, and not from the
        graph.
        """
    @property
    def floor(self, /) -> str | None:
        """
        Whether ``floor`` of the plan was ``"verified"`` or only ``"claimed"``; None if the plan
        claims none.
        """
    @property
    def is_verified(self, /) -> bool:
        """
        Whether the checker derived every claim in the plan.
        """
    @property
    def lower_bound(self, /) -> str:
        """
        Whether the plan's ``lower_bound`` was ``"verified"`` or only ``"claimed"``.
        """
    @property
    def max_live(self, /) -> list[int]:
        """
        For each space the bytes that are live at once at the highest step, as counted by the
        checker: no offsets need fewer. Workspaces count with their smallest sizes.
        """
    @property
    def move_cost(self, /) -> str | None:
        """
        Whether the lower bound of ``move_cost`` was ``"verified"`` or only ``"claimed"``; None if
        the plan claims none.
        """
    @property
    def order(self, /) -> str | None:
        """
        Whether a complete search for an order was ``"verified"`` or only ``"claimed"``; None if
        the plan claims none.
        """
    @property
    def repetitions(self, /) -> str | None:
        """
        Whether floor and bound of a plan in which nodes run again were ``"verified"`` or only
        ``"claimed"``; None for other plans.
        """
    @property
    def status(self, /) -> str:
        """
        Whether the plan's ``status`` was ``"verified"`` or only ``"claimed"``.
        """

@final
class WindowSide:
    """
    A spatial dimension of a sliding window.

    Parameters
    ----------
    size : int
        Input elements.
    out : int
        Window positions.
    kernel : int
        Elements under the window.
    stride : int
        Elements from one position to the next.
    dilation : int
        Elements between neighbors under the window.
    before : int
        Zeros in front of the input.
    """

    def __eq__(self, value: object, /) -> bool: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __new__(
        cls, /, size: int, out: int, kernel: int, stride: int, dilation: int, before: int
    ) -> WindowSide: ...

def color_nodes(graph: Graph, num_temp: int) -> tuple[list[int], int]:
    """
    Return every node's color, at most ``num_temp`` colors, and the color count.
    """

def explain(
    graph: Graph,
    options: Incomplete,
    *,
    costs: Any | None = None,
    on_progress: Any | None = None,
    time_limit: float | None = None,
) -> Explained:
    """
    Return a plan, and the bytes and times for other choices of techniques.
    """

def extra_of_chen(graph: Graph, options: Incomplete, budgets: Sequence[int]) -> list[float | None]:
    """
    Return the extra work of the best schedule by Chen et al. within each of some numbers of bytes,
    or None without such a schedule.
    """

def find_assigns(graph: Graph, elementwise: Sequence[int] | None = None) -> list[Assign | None]:
    """
    Return for each node the assignment, or None if the node is not an assignment.
    """

def fuse(graph: Graph, kinds: Sequence[str]) -> list[list[int]]:
    """
    Return groups of nodes that can run as one, for given kinds of fusion.
    """

def graph_schema() -> str:
    """
    Return the JSON Schema for graph files.
    """

def hazards_schema() -> str:
    """
    Return the JSON Schema for hazards.
    """

def load_params(blob: bytes) -> list[tuple[str, str, list[int], bytes]]:
    """
    Return ``(name, dtype, shape, bytes)`` for every array in a parameter blob.
    """

def minimum_cut(vertices: int, arcs: Sequence[tuple[int, int, int]]) -> list[bool]:
    """
    Return, by vertex, whether the vertex is on the source's side of a minimum cut.

    Vertex 0 is the source, vertex 1 the sink. No cut contains arcs with a capacity of 2^60 or more.

    Raises
    ------
    InvalidOption
        If an arc names a vertex that is not there, or each cut contains such an arc.
    """

def model_schema() -> str:
    """
    Return the JSON Schema for model files.
    """

def nodes_in_strips(
    graph: Graph, costs: Any, nodes: Sequence[int], rows: int
) -> tuple[list[int], Strips] | None:
    """
    Return nodes in the order in which they run in strips of so many rows by a backend's row
    kernels, and the strips; None if the nodes cannot run in such strips.
    """

def order_mutations(graph: Graph, elementwise: Sequence[int] | None = None) -> list[list[int]]:
    """
    Return the nodes that every node must run after, so that states change in the order in which
    the nodes were added.
    """

def pack(
    problem: dict[str, Any],
    time_limit: float | None,
    node_limit: int | None,
    seed: int,
    compact: bool,
    on_progress: Any | None,
) -> Packing:
    """
    Pack the buffers in ``problem``.
    """

def pack_again(
    problem: dict[str, Any], old: Sequence[int | None], seed: int
) -> tuple[Packing, list[int], int]:
    """
    Return a packing with few buffers away from ``old``, those buffers, and the peak of staying.
    """

def pack_apart(
    sizes: Sequence[int],
    rules: Sequence[tuple[int, int, int, int]],
    orders: Sequence[Sequence[int]],
    last: Sequence[int],
    tries: int,
    seed: int,
    goal: int,
) -> list[int]:
    """
    Return offsets for items with ``sizes`` bytes that obey rules ``(item, other, low, high)``.

    No item begins more than ``low`` and less than ``high`` bytes after the other. The items in each
    of ``orders`` are searched; the items in ``last`` are placed afterwards.
    """

def pack_blame(problem: dict[str, Any], space: int) -> list[int] | None:
    """
    Return the buffers that prove that space number ``space`` is too small, or None.
    """

def pack_csv(
    text: str,
    spaces: list[tuple[str, int | None, int, list[tuple[int, int]]]],
    time_limit: float | None,
    node_limit: int | None,
    seed: int,
    compact: bool,
    on_progress: Any | None,
) -> Packing:
    """
    Pack the buffers in a CSV document. The first of ``spaces`` describes every space that no other
    entry names.
    """

def pack_csv_again(
    text: str, old: str, spaces: list[tuple[str, int | None, int, list[tuple[int, int]]]], seed: int
) -> tuple[Packing, list[str], int]:
    """
    Return a packing for a CSV document close to the ``old`` document's packing, the identifiers of
    moved buffers, and the peak of staying.
    """

def pack_csv_blame(
    text: str, spaces: list[tuple[str, int | None, int, list[tuple[int, int]]]]
) -> list[tuple[str, list[str]]]:
    """
    Return the name of each space in a CSV document that is proven too small, with the identifiers
    of buffers that prove it.
    """

def pack_matrix(matrix: ndarray[Any, Any], transposed: bool, target: ndarray[Any, Any]) -> None:
    """
    Write a matrix in the order in which :meth:`CompiledKernel.product` reads the matrix.

    Parameters
    ----------
    matrix : array, shape (depth, columns)
        Shape (columns, depth) if transposed.
    transposed : bool
    target : array
        :func:`packed_matrix` elements.
    """

def pack_quantized(weights: ndarray[Any, Any], target: ndarray[Any, Any], lanes: int) -> None:
    """
    Write weights in the order in which :func:`quantized_conv` reads the weights.

    Parameters
    ----------
    weights : array of int16, shape (groups, channels, channels of the image, elements of a window)
        Integers less the zero point.
    target : array of int32
        :func:`packed_quantized` elements.
    lanes : int
        :func:`quantized_lanes` for the weights.
    """

def pack_quantized_matrix(matrix: ndarray[Any, Any], target: ndarray[Any, Any], lanes: int) -> None:
    """
    Write a matrix in the order in which :func:`quantized_product` reads the matrix.

    Parameters
    ----------
    matrix : array of int16, shape (depth, columns)
        Integers less the zero point.
    target : array of float32
        :func:`packed_quantized_matrix` elements.
    lanes : int
        :func:`quantized_lanes` for the matrix.
    """

def pack_weights(weights: ndarray[Any, Any], target: ndarray[Any, Any]) -> None:
    """
    Write convolution weights in the order in which :meth:`CompiledKernel.conv` reads the weights.

    Parameters
    ----------
    weights : array, shape (groups, channels, depth)
    target : array of :func:`packed_weights` elements
    """

def packed_matrix(depth: int, columns: int) -> int:
    """
    Return the number of elements that :func:`pack_matrix` writes.
    """

def packed_quantized(shape: Sequence[int], lanes: int) -> int:
    """
    Return the number of elements that :func:`pack_quantized` writes for a weight shape.
    """

def packed_quantized_matrix(depth: int, columns: int, lanes: int) -> int:
    """
    Return the number of elements that :func:`pack_quantized_matrix` writes.
    """

def packed_weights(groups: int, fan_out: int, depth: int) -> int:
    """
    Return the number of elements that :func:`pack_weights` writes on this processor.

    Raises
    ------
    InvalidOperand
        If the number overflows.
    """

def plan(
    graph: Graph,
    options: Incomplete,
    *,
    steps: Sequence[Sequence[int]] | None = None,
    spaces: Sequence[tuple[str, int | None, int, int]] | None = None,
    homes: Sequence[tuple[int, int]] = ...,
    strips: Sequence[Strips] = ...,
    node_times: Sequence[int] | None = None,
    costs: Any | None = None,
    on_progress: Any | None = None,
    time_limit: float | None = None,
) -> Plan:
    """
    Plan ``graph`` with the given options, a dict; ``steps`` are the steps to run, if given.

    ``spaces`` are memories as ``(name, capacity, alignment, cost)``, and ``homes`` pairs of a value
    and the only permitted space. ``strips`` states the strips of steps, ``node_times`` is the time
    of each node, and ``costs`` are a backend's step costs. After ``time_limit`` seconds, or when
    ``on_progress`` returns ``False``, the best plan so far is returned.
    """

def plan_schema() -> str:
    """
    Return the JSON Schema for plan files.
    """

def plan_together(
    graphs: Sequence[Graph],
    together: str,
    options: Incomplete,
    on_progress: Any | None = None,
    time_limit: float | None = None,
) -> SharedPlan:
    """
    Plan ``graphs`` for one arena with the given options, a dict; ``together`` is
    ``"never-together"`` or ``"concurrent"``.
    """

def quantized_conv(
    image: ndarray[Any, Any],
    encoding: ByteEncoding,
    weights: ndarray[Any, Any],
    result: ByteResult,
    output: ndarray[Any, Any],
    scratch: ndarray[Any, Any],
    rows: WindowSide,
    columns: WindowSide,
    groups: int,
    lanes: int,
) -> CompiledKernel:
    """
    Return a byte convolution with exact sums.

    Parameters
    ----------
    image : array of uint8, shape (images, channels, ...)
        Signed bytes as their bits.
    encoding : ByteEncoding
        The image encoding.
    weights : array of int32
        Weights from :func:`pack_quantized`.
    result : ByteResult
    output : array of uint8, shape (images, channels, ...)
    scratch : array of float32
        :attr:`ConvWay.elements` elements for a way.
    rows, columns : WindowSide
        The two spatial dimensions.
    groups : int
    lanes : int
        :func:`quantized_lanes` for the weights.
    """

def quantized_depthwise(
    image: ndarray[Any, Any],
    encoding: ByteEncoding,
    weights: ndarray[Any, Any],
    addend: ndarray[Any, Any] | None,
    result: ByteResult,
    output: ndarray[Any, Any],
    scratch: ndarray[Any, Any],
    rows: WindowSide,
    columns: WindowSide,
) -> CompiledKernel:
    """
    Return a convolution of every byte channel by itself: see :func:`quantized_conv`.

    The output may be the image's memory, if it has as many channels of the same size. A sum is
    exact if the absolute values of its terms add up to at most 2**24.

    Parameters
    ----------
    weights : array of float32
        One window per output channel, with integers less the zero point.
    addend : array of float32, optional
        For each output channel, an integer that its sums begin with.
    scratch : array of float32
        :func:`quantized_depthwise_scratch` elements.
    """

def quantized_depthwise_scratch(rows: WindowSide, columns: WindowSide) -> int:
    """
    Return the scratch elements that :func:`quantized_depthwise` needs.
    """

def quantized_lanes(weights: ndarray[Any, Any]) -> int:
    """
    Return how many channels lie in a lane, where this processor multiplies some weights fastest.

    Parameters
    ----------
    weights : array of int16
        Integers less the zero point.
    """

def quantized_product(
    rows: ndarray[Any, Any],
    encoding: ByteEncoding,
    matrix: ndarray[Any, Any],
    result: ByteResult,
    output: ndarray[Any, Any],
    scratch: ndarray[Any, Any],
    lanes: int,
) -> CompiledKernel:
    """
    Return the product of byte rows and a matrix, with exact sums: see :func:`quantized_conv`.

    Parameters
    ----------
    rows : array of uint8, shape (..., depth)
    matrix : array of float32
        The matrix from :func:`pack_quantized_matrix`.
    result : ByteResult
        Channels are columns.
    output : array of uint8, shape (..., columns)
        May be the rows' memory.
    scratch : array of float32
        :func:`quantized_product_scratch` elements; the elements for fewer rows suffice.
    lanes : int
        :func:`quantized_lanes` for the matrix.
    """

def quantized_product_scratch(rows: int, depth: int, columns: int) -> int:
    """
    Return the scratch elements with which :func:`quantized_product` is fastest.
    """

def quantized_way(
    rows: WindowSide, columns: WindowSide, fan_in: int, fan_out: int, room: int
) -> ConvWay:
    """
    Return the fastest way for :func:`quantized_conv` within so many scratch elements, or the
    smallest way.

    Parameters
    ----------
    rows, columns : WindowSide
    fan_in, fan_out : int
        Channels per group.
    room : int
    """

def recompute(
    graph: Graph,
    options: Incomplete,
    goal: tuple[str, int],
    *,
    strategy: str = "",
    paging: Paging | None = None,
    costs: Any | None = None,
    on_progress: Any | None = None,
    time_limit: float | None = None,
) -> Plan:
    """
    Return a plan in which nodes run again to meet a goal: ``("bytes", number)``,
    ``("extra", millionths)`` or ``("strategy", 0)`` with a name.
    """

def recompute_curve(
    graph: Graph,
    options: Incomplete,
    on_progress: Any | None = None,
    time_limit: float | None = None,
    paging: Paging | None = None,
) -> RecomputeCurve:
    """
    Return the fewest bytes over the extra work.
    """

def save_params(params: Sequence[tuple[str, str, Sequence[int], bytes | bytearray]]) -> bytes:
    """
    Return a parameter blob with ``(name, dtype, shape, bytes)`` rows.
    """

def set_views(**views: object) -> None:
    """
    Hand over the functions, by name, that make views of plans, packings and curves. The first
    functions stay.
    """

def share_storage(
    graph: Graph,
    *,
    match_range: int,
    auto_search: bool,
    num_temp: int,
    size_rule: str,
    mode: str,
    parallel_safe: bool,
    nodes: tuple[int, int] | None,
    counts: Sequence[int] | None,
    assigned: Sequence[int] | None,
) -> StoragePlan:
    """
    Return the values in ``graph`` that can share blocks.
    """

def step_times(graph: Graph, plan: Plan, costs: Any) -> list[int]:
    """
    Return the estimated nanoseconds of each step in a plan, by a backend's costs.
    """

def targets() -> list[Target]:
    """
    Return the known targets, the most able first.
    """

def techniques() -> list[str]:
    """
    Return the names of all techniques.
    """

def write_files(files: Sequence[tuple[str | PathLike[str], bytes | bytearray]]) -> None:
    """
    Write files, each given by its path and content.

    A regular file is replaced at once and keeps its mode, through a symbolic link, too; on failure
    the file stays unchanged. The content of all files is on disk before the first file is replaced.
    Devices, pipes, and descriptors such as ``/dev/stdout`` are written into.

    Raises
    ------
    PlanWriteError
        If a file cannot be written; the message names the file.
    BrokenPipeError
        If a pipe has no reader any more.
    """
