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
    Bytes of an incremental arena, and when they are needed.
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
    Memory that plans run in: that of :meth:`Plan.commit`, or memory of the caller.

    ``Arena(memory)`` takes any writable buffer without gaps, such as a NumPy array, a ``bytearray``,
    an ``mmap`` or the ``buf`` of a ``SharedMemory``, uses it where it is, and holds on to it until
    the arena is closed. An executor asks for as many bytes as its plan needs, and for the alignment
    of the plan.

    An arena is a writable buffer of bytes: ``memoryview(arena)``, ``numpy.frombuffer(arena, "u1")``
    and ``numpy.from_dlpack(arena)`` share its memory and keep it alive. One run at a time
    may use it: see :meth:`lease`.

    Parameters
    ----------
    memory : buffer
        The bytes.

    Raises
    ------
    InvalidBuffer
        If the memory is no buffer of main memory, is read-only, or has gaps.

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
        Share the memory as DLPack, by way of NumPy.
        """
    def __dlpack_device__(self, /) -> tuple[int, int]:
        """
        DLPack's name of the device: main memory.
        """
    def __enter__(self, /) -> Arena: ...
    def __exit__(self, /, *_exception: object) -> None:
        """
        Close the arena unless views of it are still alive: they keep the memory.
        """
    def __len__(self, /) -> int: ...
    def __new__(cls, /, memory: object) -> Arena: ...
    def __reduce__(self, /) -> tuple[str]: ...
    def __repr__(self, /) -> str: ...
    @property
    def address(self, /) -> int:
        """
        Address of the first byte.
        """
    def close(self, /) -> None:
        """
        Free the memory; memory of the caller is let go, and stays as it is.

        Raises
        ------
        ArenaInUse
            If buffers share it.
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
            If another run has it.
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
    Bytes of the temporary and of the persistent arena of an incremental planner.
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
        Bytes of the arena of states.
        """
    @property
    def temporary(self, /) -> int:
        """
        Bytes of the arena of values that die.
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
        What the node returns: the new bytes of the state.
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
        Name of the space.
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

    A sum of a channel is multiplied by its scale, its shift is added, the number is bounded, divided,
    and rounded to the nearest integer, ties to even.

    Parameters
    ----------
    scale, shift : array of float32
        One number for each channel.
    low, high : float
    divisor : float
        The scale of the result.
    result : ByteEncoding
    addend : array of int32, optional
        An integer for each channel, which its sums begin with.
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
        Name of the value.
        """
    @property
    def value(self, /) -> int:
        """
        Index of the value in the graph.
        """

@final
class CompiledKernel:
    """
    A kernel of the executor that is bound to its arrays; calling it does the work.

    It keeps the arrays alive, allocates nothing, and runs without the interpreter lock. One that is
    made in a block of a :class:`ThreadTeam` is divided among its threads.
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
        Return a chain of elementwise functions.

        Parameters
        ----------
        steps : list of (str, int, tuple of three int or float)
            Function, register of the result, and arguments: the number of a register, or a constant.
            Those that the function does not have are any constants.
            The function ``"load"`` has the position of an operand as its first argument.
        result : int
            The register that is written. Integers are the nearest ones, and bounded.
        operands : list of array
            Of single precision or integers of 8 bits, broadcast to the shape of the output.
        output : array
            One like these. May be the memory of an operand of its shape, or begin before one of
            wider elements if both are contiguous.
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
            Those of :func:`pack_weights`.
        output : array, shape (images, channels, ...)
        scratch : array
            :attr:`ConvWay.elements` elements of a way; the more, the faster.
        rows, columns : WindowSide
            The two spatial dimensions.
        groups : int
        bias : array, optional
            One number per channel of the output.
        low, high : float
            Bounds of the output.
        addend : array, optional
            Added to the result; may be the memory of the output.
        """
    @staticmethod
    def conv_way(
        rows: WindowSide, columns: WindowSide, fan_in: int, fan_out: int, room: int
    ) -> ConvWay:
        """
        Return the fastest way of :meth:`conv` within some elements of scratch memory, at least 48.

        Parameters
        ----------
        fan_in, fan_out : int
            Channels of a group.
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

        The output may share memory with the image if both are contiguous and no plane of it shares
        any with a later plane of the image.

        Parameters
        ----------
        weights : array
            One window per channel of the output.
        scratch : array
            :meth:`depthwise_scratch` elements.
        """
    @staticmethod
    def depthwise_scratch(rows: WindowSide, columns: WindowSide) -> int:
        """
        Return the elements of scratch memory that :meth:`depthwise` needs.
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
        Return a normalization of the rows of an array: see :meth:`softmax`.

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
        Return the pooling of windows: their largest elements, or sums divided by counts.

        Parameters
        ----------
        scratch : array
            As many elements as a row of the image has.
        counts : (array, array), optional
            One number per row and per column of the output; the largest element if left out.
        """
    @staticmethod
    def product(
        rows: ndarray[Any, Any],
        matrix: ndarray[Any, Any],
        output: ndarray[Any, Any],
        bias: ndarray[Any, Any] | None = None,
    ) -> CompiledKernel:
        """
        Return the product of a matrix, or of several, and one of :func:`pack_matrix`.

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
        Return some steps of a recurrent layer.

        Parameters
        ----------
        cell : {"RNN", "rectified RNN", "GRU", "late GRU", "LSTM"}
            The resets of a late GRU come after the product with the hidden state.
        sums : array, shape (steps, sequences, gates * hidden)
            The gates' products with the input, and their biases; overwritten.
        state, memory : array, shape (sequences, hidden)
            The hidden state, and the cell of an LSTM; scratch memory of a GRU.
        early, late : array
            Those of :func:`pack_matrix`; the second is the matrix of the last gate of a GRU.
        bias : array, optional
            That of the product with ``late``, of a late GRU.
        output : array, shape (steps, sequences, hidden), optional
            The hidden state after each step.
        backward : bool
            Whether the last step comes first.
        """
    @staticmethod
    def softmax(source: ndarray[Any, Any] | None, output: ndarray[Any, Any]) -> CompiledKernel:
        """
        Return the softmax of the rows of an array: its elements along the last axis.

        Parameters
        ----------
        source : array or None
            If left out, the rows of the output are replaced.
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
        Return the softmax of rows of integers of 8 bits, which are one behind the other.

        Parameters
        ----------
        source : array
        length : int
            Elements of a row.
        table : array of float32, shape (256,)
            Powers: the last one for the largest element of a row, the one before it for an integer
            less by one, and so on.
        factor : float
            Multiplied with each power, before it is divided by their sum.
        zero : float
            Added to the rounded quotient.
        output : array
            Of the source's shape; may be its memory.
        """

@final
class ConvWay:
    """
    A way to compute a convolution.
    """

    @property
    def cycles(self, /) -> int:
        """
        About how many cycles the product of one group takes, if its operands are in cache.
        """
    @property
    def elements(self, /) -> int:
        """
        Elements of scratch memory.
        """

@final
class Covers:
    """
    The part of a model that a graph, and a plan of it, stand for. Nothing that answers for the model,
    such as a budget or a gate, accepts a part.

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
        What decides those sizes, a sentence each.
        """
    @property
    def is_whole(self, /) -> bool:
        """
        Whether this is the whole model.
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
            If this is not the whole model.
        """
    @property
    def signature(self, /) -> str:
        """
        Name of the entry point of the model, if the model has several.
        """
    @property
    def waiting(self, /) -> list[str]:
        """
        Nodes that are not in the graph, since data decides sizes that they need.
        """

@final
class Estimate:
    """
    Estimated times of one run.
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
        Seconds of one run in the fastest way that is known.
        """
    @property
    def seconds(self, /) -> float:
        """
        Seconds of one run of the plan.
        """

@final
class Explained:
    """
    A plan, and the bytes and times of other choices of techniques.
    """

    @property
    def levels(self, /) -> list[Level]:
        """
        With each technique added to those before it.
        """
    @property
    def plan(self, /) -> Plan:
        """
        The plan with all techniques that were asked for.
        """
    @property
    def points(self, /) -> list[PlanPoint]:
        """
        Of the plans that it was compared with, those that no other plan beats.
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
        Validate tables of values and nodes.
        """
    @property
    def covers(self, /) -> Covers:
        """
        The part of the model that the graph has.
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
        SHA-256, in hexadecimal, of all that a plan depends on.
        """
    @staticmethod
    def from_json(text: str | bytes) -> Graph:
        """
        Return the graph that JSON text holds.
        """
    def grouped(self, /, groups: Sequence[Sequence[int]], strips: Sequence[int] = ...) -> Graph:
        """
        Return the graph in which each group of nodes, by index in execution order, is one node.
        Values keep their indices. Groups that end with one of ``strips`` run strip by strip.

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
        Return the graph in which each execution of a schedule, a list of nodes by index and of values
        that are copied, is a node.
        """
    @property
    def sizes(self, /) -> list[int]:
        """
        Bytes of every value.
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
        Position of the step that waits.
        """
    @property
    def before(self, /) -> int:
        """
        Position of the step that it waits for.
        """
    @property
    def kind(self, /) -> str:
        """
        Why: ``"data"``, ``"write-after-read"``, ``"write-after-write"`` or ``"control"``.
        """

@final
class Hazards:
    """
    The dependencies between the steps of a plan, transitively reduced.

    A runner that starts each step after those that it waits for may run all others in any order and
    at the same time. :meth:`Plan.hazards` computes them, :meth:`Plan.check_hazards` proves them.

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
        Return the time of the longest chain of steps that wait for each other.
        """
    def dependents(self, /) -> list[list[int]]:
        """
        Return, by step, the steps that wait for it.
        """
    @property
    def digest(self, /) -> str:
        """
        Digest of the graph that was planned.
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
        Name of the model.
        """
    def of(self, /, step: int) -> list[Hazard]:
        """
        Return the edges to a step: the steps that it waits for.
        """
    @property
    def steps(self, /) -> int:
        """
        Number of steps.
        """
    def timetable(self, /, costs: Sequence[int], workers: int) -> Timetable:
        """
        Return when the steps start if ``workers`` run them, each the first step in order that may
        run.

        Parameters
        ----------
        costs : list of int
            The time of each step.
        workers : int
            Number of workers.
        """
    def to_json(self, /) -> str:
        """
        Return the hazards as JSON text.
        """

@final
class IncrementalArena:
    """
    An arena whose allocations have live ranges and only avoid those they meet, as
    TensorFlow Lite's today.

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
        Size of the memory.
        """
    def clear(self, /) -> None:
        """
        Drop all allocations and the high-water mark, and keep the memory.
        """
    def commit(self, /) -> bool:
        """
        Get memory for all that was allocated; return whether it moved.

        Raises
        ------
        ArenaCommitError
            If there is not enough memory; the arena is then unchanged.
        ArenaInUse
            If the memory would move while views of it are alive.
        """
    def deallocate(self, /, allocation: Allocation) -> None:
        """
        Drop one allocation, if it is active.
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
            If another run has it.
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
        Free the memory, and keep the allocations; it needs a commit again.

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
        Return a copy of an allocation's bytes, or None if it has none.
        """
    def restore(self, /, allocations: Sequence[Allocation]) -> None:
        """
        Make exactly ``allocations``, which this arena made, active.
        """
    def view(self, /, allocation: Allocation) -> memoryview | None:
        """
        Return a writable view of an allocation's bytes, or None if it has none.

        While it is alive, :meth:`commit` does not move the memory, nor does :meth:`release`
        free it.
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
        Whether it is in the persistent arena, and not in the temporary one.
        """

@final
class IncrementalPlanner:
    """
    Places the values of a graph whose sizes become known while it runs.
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
        High-water marks of the temporary and of the persistent arena.
        """
    @property
    def buffer_bytes(self, /) -> ArenaBytes:
        """
        Memory of the temporary and of the persistent arena.
        """
    def execute(self, /, start: int, stop: int) -> None:
        """
        Place the values that begin with nodes ``start`` up to, and without, ``stop``.

        Raises
        ------
        ArenaInUse
            If an arena would move while views of it are alive; the same call does the rest
            once they are gone.
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
        Return a planner of the nodes of ``graph`` in execution order; values have the same
        indices, and each workspace, in its smallest size, is one more.
        """
    def lease(self, /) -> Lease:
        """
        Reserve the arenas for one run, until the returned lease is released.

        Raises
        ------
        ArenaBusy
            If another run has them.
        """
    def place(self, /, value: int) -> IncrementalPlacement | None:
        """
        Return the place of a value, or None if it has no bytes in an arena, or its node was not
        reached yet.
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
            If views of it are alive.
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
        Plan another graph in the same memory; nothing is placed yet. The tables are those of
        the constructor.
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
        Return the value whose bytes ``value`` has: itself, unless it shares.
        """
    def set_bytes(self, /, value: int, nbytes: int) -> None:
        """
        Change the size of a value.
        """
    def set_kind(self, /, value: int, kind: str) -> None:
        """
        Change the owner of a value's bytes.
        """
    def view(self, /, value: int) -> memoryview | None:
        """
        Return a writable view of a value's bytes, or None where :meth:`place` does.

        ``numpy.frombuffer(view, dtype)`` shares the memory. While a view is alive its arena
        neither moves nor is freed: calls that would have to do so raise ``ArenaInUse``. The
        bytes belong to the value for as long as it is live; planning gives them to other
        values afterwards.
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
    The plan with one choice of techniques.
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
        Bytes and time of the plan.
        """
    @property
    def technique(self, /) -> str:
        """
        Name of the technique that tells this choice from the choice it is compared with.
        """

@final
class LineBuffer:
    """
    Memory for some rows of a value inside of a step that runs strip by strip.
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
        Rows that it holds.
        """
    @property
    def value(self, /) -> int:
        """
        Index of the value.
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
        First step after the last one.
        """
    @property
    def start(self, /) -> int:
        """
        First step.
        """

@final
class Model:
    """
    The graphs and plans of one model for one or several shapes.
    """

    def __len__(self, /) -> int: ...
    def __new__(
        cls, /, name: str, dims: Sequence[str], shapes: Iterator[tuple[Sequence[int], object, Plan]]
    ) -> Model:
        """
        Collect shapes: per shape a size for each of ``dims``, the graph, and a plan of it.
        """
    @property
    def arena_bytes(self, /) -> int:
        """
        Bytes of arenas that every shape can run in.
        """
    @property
    def dims(self, /) -> list[tuple[str, list[int]]]:
        """
        Names of the dimensions that vary, with the sizes of each.
        """
    def find(self, /, sizes: Sequence[tuple[str, int]], padded: bool) -> int:
        """
        Return the position of the shape for sizes by name.
        """
    @staticmethod
    def from_json(text: str | bytes) -> Model:
        """
        Return the model that JSON text holds, after a check of every plan.
        """
    def graph(self, /, sizes: Sequence[tuple[str, int]]) -> Graph:
        """
        Return the graph of a shape.
        """
    @staticmethod
    def load(path: str | PathLike[str]) -> Model:
        """
        Read a model from a file, and check every plan.
        """
    @property
    def name(self, /) -> str:
        """
        Name of the model.
        """
    def plan(self, /, sizes: Sequence[tuple[str, int]]) -> Plan:
        """
        Return the plan of a shape.
        """
    def save(self, /, path: str | PathLike[str]) -> None:
        """
        Write the model to a file, which is replaced at once or unchanged; a device or a pipe is
        written into.
        """
    @property
    def shapes(self, /) -> list[tuple[list[int], int]]:
        """
        Per shape the size of each dimension, and the bytes that it needs.
        """
    def to_json(self, /) -> str:
        """
        Return the model as JSON text.
        """

@final
class MoveCost:
    """
    The cost of moving the bytes of one run: of each value the bytes that nodes read and
    write, times the cost of its space.
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
        Cost of the plan.
        """
    @property
    def lower_bound(self, /) -> int:
        """
        Cost that no other choice of spaces goes below.
        """

@final
class Packing:
    """
    Offsets of buffers, and the proof of their peak.
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
        Position of every buffer's space among the spaces.
        """
    @property
    def interrupted(self, /) -> bool:
        """
        Whether the search was ended by Ctrl-C.
        """
    @property
    def lower_bound(self, /) -> int:
        """
        Bytes that they need at any offsets: proven.
        """
    @property
    def names(self, /) -> list[str] | None:
        """
        Names of the buffers, if they came from CSV.
        """
    @property
    def nodes(self, /) -> int:
        """
        Search nodes that were visited: the unit of ``node_limit``.
        """
    @property
    def offsets(self, /) -> list[int]:
        """
        First byte of every buffer.
        """
    @property
    def peak(self, /) -> int:
        """
        Bytes that the buffers need together at these offsets.
        """
    @property
    def rectangles(self, /) -> list[tuple[int, int, int, int, int, int]]:
        """
        Per rectangle of bytes and steps that a buffer needs: the buffer, its space, the first byte there
        and the one behind the last, the first step and the one behind the last.
        """
    @property
    def seconds(self, /) -> float:
        """
        Seconds of the search.
        """
    @property
    def spaces(self, /) -> list[tuple[int, int, str]]:
        """
        Peak, lower bound and status of each space, in their order.
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
        Return the buffers and their offsets as CSV.

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
        Bytes that it holds; None if it is unlimited.
        """
    @property
    def cost(self, /) -> int:
        """
        Cost of copying one byte in one direction, in the units of the costs of nodes.
        """
    @property
    def space(self, /) -> str:
        """
        Name of the memory.
        """

@final
class PlacedWorkspace:
    """
    The place of a scratch buffer of one step.
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
        Position of the size among the choices of the workspace.
        """
    @property
    def live(self, /) -> Live:
        """
        The step of the node, as a range.
        """
    @property
    def node(self, /) -> int:
        """
        Index of the node; of nodes that run as one, the last.
        """
    @property
    def offset(self, /) -> int:
        """
        First byte in the space.
        """
    @property
    def slot(self, /) -> int:
        """
        Position among the workspaces of the node.
        """
    @property
    def space(self, /) -> int:
        """
        Position of the space in ``plan.spaces``.
        """

@final
class Placement:
    """
    The place of a value.

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
        Whether another value has exactly these bytes of this space, at whatever time.
        """
    @property
    def space(self, /) -> int:
        """
        Position of the space in ``plan.spaces``; numbers from ``len(plan.spaces)`` on are
        those of ``plan.caller_buffers``.
        """

@final
class Plan:
    """
    Where every value of a graph lives in one arena per memory.

    It maps the name of each value that has a place to its :class:`Placement`: ``plan[name]``,
    ``name in plan``, ``len(plan)``, ``for name in plan``. Constants have no place.

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
        Return the place of the value called ``name``.

        Raises
        ------
        UndefinedValue
            If no value of this name has a place; constants have none. It is a ``KeyError``.
        """
    def __iter__(self, /) -> Iterator[str]:
        """
        Iterate over the names of the values that have a place, in the order of the graph.
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
        Alignment of every offset, in bytes.
        """
    @property
    def arena_bytes(self, /) -> int:
        """
        Bytes of all arenas together.
        """
    @property
    def bases(self, /) -> list[int]:
        """
        Start of the arena of each space in the memory that :meth:`commit` allocates.
        """
    @property
    def bytes_moved(self, /) -> list[int | None]:
        """
        Per value of the graph the bytes of it that nodes read and write in one run, or None
        if it has no place.
        """
    @property
    def caller_buffers(self, /) -> list[CallerBuffer]:
        """
        The buffers that the caller brings, in the order of the values.

        The buffers are spaces too, behind the last of ``spaces``.
        """
    def check(self, /, graph: Any) -> Verdict:
        """
        Raise unless the plan is valid for ``graph``, and return the proofs of its claims.

        Raises
        ------
        PlanMismatch
            If it was made for another graph.
        PlanOverlap, PlanOutOfBounds, PlanMisaligned, PlanCorrupt
            If it would corrupt bytes, contradicts itself, or makes a false claim.
        """
    def check_hazards(self, /, graph: Any, hazards: Hazards) -> None:
        """
        Raise unless hazards are exactly those of the plan.

        Raises
        ------
        HazardMismatch
            If two steps that use the same bytes are not ordered, or an edge is superfluous.
        PlanMismatch, PlanOverlap, PlanOutOfBounds, PlanMisaligned, PlanCorrupt
            As :meth:`check`.
        """
    def check_target(self, /, target: Target) -> None:
        """
        Raise unless ``target`` can run the plan, which may have been made for another one.

        Call :meth:`check` first: this method believes the sizes in the plan.

        Raises
        ------
        TargetMismatch
            For the first step or option that the target does not honor.
        """
    def commit(self, /, space: str | None = None) -> Arena:
        """
        Allocate the arenas of all spaces, side by side, or the one of ``space`` alone.
        """
    @property
    def covers(self, /) -> Covers:
        """
        The part of the model that was planned: that of the graph.
        """
    @property
    def digest(self, /) -> str:
        """
        Digest of the graph that was planned.
        """
    @property
    def estimate(self, /) -> Estimate | None:
        """
        The estimated times of one run; None if time was not weighed against bytes.
        """
    @property
    def extra_bound(self, /) -> float:
        """
        Proven lower bound of ``extra_cost`` for every schedule with as many bytes that runs each
        node by itself.
        """
    @property
    def extra_cost(self, /) -> float:
        """
        Work of the nodes that run again and of the copies, as a part of the work of running each
        node once.
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
        Distance of ``arena_bytes`` from ``lower_bound``, as a fraction of the latter.
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
    def live_at(self, /, step: int) -> list[int]:
        """
        Return the indices of the values that are live in an arena at ``step``, by offset.
        """
    @property
    def live_bytes(self, /) -> list[int]:
        """
        Live bytes of all spaces at every step; shared bytes count once.
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
        Name of the model.
        """
    @property
    def move_cost(self, /) -> MoveCost | None:
        """
        The cost of moving the bytes of one run, or None if the plan did not choose the space of
        each value.
        """
    @property
    def naive_bytes(self, /) -> int | None:
        """
        Bytes if every value had memory of its own; None if no machine has as many.
        """
    @property
    def options(self, /) -> dict[str, Any]:
        """
        The options that the plan was made with.
        """
    @property
    def order(self, /) -> list[int]:
        """
        Indices of the nodes in the order in which they first run.
        """
    @property
    def order_search(self, /) -> str | None:
        """
        Scope of the order: ``"given"`` if no other was searched for, ``"complete"`` if
        no other order of these steps has fewer bytes live at its highest step, ``"beam"`` if
        it is the best of those tried; None if the caller chose the steps.
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
        First step at which most bytes of all spaces are live.
        """
    @property
    def placements(self, /) -> list[Placement | None]:
        """
        Per value of the graph its place, or None if it has none, as constants.

        ``plan[name]`` looks one up by the name of its value.
        """
    @property
    def recompute_floor(self, /) -> int | None:
        """
        Bytes that no schedule goes below that runs each node by itself; None if each node of the plan
        runs once.
        """
    @property
    def repeated(self, /) -> list[int]:
        """
        Indices of the nodes that run in several steps: cheap ones, whose small inputs are kept and
        not their large output.
        """
    def resized(self, /, graph: Any) -> Plan:
        """
        Return a plan of ``graph`` that has the offsets of this one.

        The graph has the same nodes and values, with sizes of its own. Each workspace gets the
        cheapest size that fits into the bytes it had, or moves to where its step leaves room.

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
        The executions of a plan in which nodes run again, as indices of nodes of the graph without
        repetitions, and values that are copied, as :class:`Transfer`: a reader reads the latest
        value that was made before. None if each node runs once and no value is copied.
        """
    @property
    def shares(self, /) -> list[Share]:
        """
        The values of each step that share bytes, in the order of the steps.

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
        Return the name of the space at position ``space``; that of a buffer of the caller
        begins with ``"caller:"``.
        """
    @property
    def spaces(self, /) -> list[PlannedSpace]:
        """
        The memories, each with the arena in it.
        """
    @property
    def status(self, /) -> str:
        """
        Status of ``arena_bytes``: ``"optimal"``, ``"feasible"``, ``"infeasible"`` or
        ``"unknown"``.
        """
    def step_operands(self, /, node: int) -> StepOperands:
        """
        Return the values that the step of a node reads and writes.

        Raises
        ------
        UndefinedValue
            If there is no such node.
        """
    @property
    def steps(self, /) -> list[list[int]]:
        """
        Per step the indices of the nodes that it runs as one, in order; nearly always one.
        """
    @property
    def strips(self, /) -> list[Strips]:
        """
        How steps run strip by strip, for those that do, in their order.
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
        Return the places of values and workspaces as a data frame of pandas.

        Columns are ``name``, ``kind``, ``space``, ``offset``, ``bytes``, ``start`` and ``stop``
        (live steps), ``read_by`` and ``written_by`` (numbers of steps), in the order of the graph.

        Raises
        ------
        ImportError
            If pandas is not installed.
        """
    def with_estimate(self, /, nanoseconds: int, fastest_nanoseconds: int) -> Plan:
        """
        Return the same plan with an estimate of the time of one run, and of one run in the
        fastest way that is known, in nanoseconds.
        """
    @property
    def workspaces(self, /) -> list[PlacedWorkspace]:
        """
        Scratch buffers of steps, by node and slot.
        """

@final
class PlanPoint:
    """
    Bytes and time of a plan.
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
        Bytes of all arenas together.
        """
    @property
    def nanoseconds(self, /) -> int:
        """
        Estimated nanoseconds of one run; 0 without a backend.
        """

@final
class PlannedSpace:
    """
    A memory, and the size of the arena in it.
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
        Alignment of the first byte of the arena.
        """
    @property
    def arena_bytes(self, /) -> int:
        """
        Size of its arena in bytes.
        """
    @property
    def capacity(self, /) -> int | None:
        """
        Bytes that the arena may have, or None if they are not limited.
        """
    @property
    def cost(self, /) -> int:
        """
        Cost of a byte that a node reads or writes, relative to those of other spaces.
        """
    @property
    def lower_bound(self, /) -> int:
        """
        Bytes that no offsets of these values in this space can go below.
        """
    @property
    def name(self, /) -> str:
        """
        Name of the space.
        """
    @property
    def status(self, /) -> str:
        """
        What is proven of ``arena_bytes``: ``"optimal"``, ``"feasible"``, ``"infeasible"`` or ``"unknown"``.
        """

@final
class Queue:
    """
    Functions that run in the background, each after those that it depends on.

    Functions are pushed in an order, the serial one, with the variables that each reads and writes.
    A function waits for earlier ones that write what it reads or writes, and for earlier ones that read
    what it writes; all others may run before it or at the same time. So every function sees the values
    that it sees in a serial run. Of functions that may run, the one that was pushed first starts first.

    A function that raises leaves its exception in the variables that it writes. Functions that read or
    write such a variable are skipped, and hand the exception on; it is raised by :meth:`wait` and
    :meth:`get`, until :meth:`restore` gives the variable another value.

    A variable of which no handle and no operation is left takes no memory.

    Parameters
    ----------
    workers : int, default 4
        Number of threads; with 0, functions run in :meth:`push`.

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
        Push a function, and do not wait for it.

        Parameters
        ----------
        function : callable
            Called with the values of ``reads``, then those of ``writes``. A result other than None is the
            new value of the variable in ``writes``; if there are several, the result is a tuple with a
            value for each. A result that is a ``concurrent.futures.Future`` completes the function
            later: no thread of the queue waits for it, and what the future holds is the result.
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
        Push an operation that gives a variable another value, and takes its exception away.
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
            The one of the function that failed; without a variable, of the first one that failed since
            the last such call.
        QueueState
            In a function of the queue, which would wait for itself, or if the queue is closed.
        """

@final
class RecomputeCurve:
    """
    Bytes of the arena over extra work.
    """

    @property
    def cost(self, /) -> int:
        """
        Cost of running each node once.
        """
    @property
    def floor(self, /) -> int:
        """
        Bytes that no schedule goes below that runs each node by itself.
        """
    @property
    def points(self, /) -> list[RecomputePoint]:
        """
        Points in descending order of bytes and ascending order of work; the first repeats nothing.
        """

@final
class RecomputePoint:
    """
    One point of a curve of bytes over extra work.
    """

    @property
    def arena_bytes(self, /) -> int:
        """
        Bytes of the arena, without the slow memory.
        """
    @property
    def bound(self, /) -> float:
        """
        Proven lower bound of the extra work of every schedule in so many bytes.
        """
    @property
    def extra(self, /) -> float:
        """
        Extra work as a part of the work of running each node once.
        """
    @property
    def extra_bound(self, /) -> int:
        """
        The bound in units of cost.
        """
    @property
    def extra_cost(self, /) -> int:
        """
        Extra work in units of cost.
        """

@final
class RowsInPlace:
    """
    A value inside of such a step whose rows are made in the rows of a later one.
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
        Index of the value that takes its rows over.
        """
    @property
    def value(self, /) -> int:
        """
        Index of the value.
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
        Index of the node; of nodes that run as one, the last.
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
    Plans of several graphs that share one arena.
    """

    def __repr__(self, /) -> str: ...
    @property
    def alignment(self, /) -> int:
        """
        Alignment of the address of the arena's first byte.
        """
    @property
    def arena_bytes(self, /) -> int:
        """
        Bytes of the shared arena.
        """
    @property
    def bases(self, /) -> list[int]:
        """
        Per graph the first byte of its plan in the shared arena.
        """
    @property
    def capacity(self, /) -> int | None:
        """
        Bytes that the arena may have, or None if they are not limited.
        """
    def check(self, /, graphs: Sequence[Any]) -> SharedVerdict:
        """
        Raise unless the plans are valid for ``graphs``, and together in one arena.

        Raises
        ------
        PlanMismatch
            If they were made for other graphs.
        PlanOverlap, PlanOutOfBounds, PlanMisaligned, PlanCorrupt
            If they would corrupt bytes, or contradict themselves.
        """
    def commit(self, /) -> Arena:
        """
        Allocate the shared arena.
        """
    def fits(self, /) -> None:
        """
        Raise unless the arena fits its capacity.
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
        Per graph its plan; offsets count from its base.
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
        Rule for the runs of the graphs: ``"never-together"`` or ``"concurrent"``.
        """

@final
class SharedVerdict:
    """
    Result of a check about the claims of valid plans that share one arena.
    """

    def __eq__(self, value: object, /) -> bool: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __repr__(self, /) -> str: ...
    @property
    def lower_bound(self, /) -> str:
        """
        Whether ``lower_bound`` of the shared plan was ``"verified"`` or only ``"claimed"``.
        """
    @property
    def max_live(self, /) -> int:
        """
        The bytes that are live at once, as the checker counts them: no offsets need fewer.
        """
    @property
    def members(self, /) -> list[Verdict]:
        """
        Verdict of each plan by itself.
        """
    @property
    def status(self, /) -> str:
        """
        Whether ``status`` of the shared plan was ``"verified"`` or only ``"claimed"``.
        """

@final
class SimpleArena:
    """
    An arena that is filled while it is planned, as TensorFlow Lite's was in 2019.

    Spans are handed out before there is memory; :meth:`commit` gets the memory, and keeps
    its content where it has to grow. No bytes are a span at offset 0 with nothing behind it.
    """

    def __new__(cls, /, alignment: int = ...) -> SimpleArena:
        """
        Make an empty arena whose first byte will be at a multiple of ``alignment``.
        """
    def allocate(self, /, alignment: int, nbytes: int) -> int:
        """
        Return the offset of ``nbytes`` bytes: of the shortest free stretch that holds them,
        or the end of the arena.

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
        Size of the memory.
        """
    def clear(self, /) -> None:
        """
        Take everything back, and keep the memory.
        """
    def commit(self, /) -> bool:
        """
        Get memory for all that was ever handed out; return whether it moved.

        Raises
        ------
        ArenaCommitError
            If there is not enough memory; the arena is then unchanged.
        ArenaInUse
            If the memory would move while views of it are alive.
        """
    def deallocate(self, /, offset: int, nbytes: int) -> None:
        """
        Take back a result of :meth:`allocate`; no bytes as often as one likes.

        Raises
        ------
        ArenaState
            If it is not handed out.
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
            If another run has it.
        """
    def resolve(self, /, offset: int, nbytes: int) -> bytes | None:
        """
        Return a copy of some bytes, or None for no bytes.
        """
    def view(self, /, offset: int, nbytes: int) -> memoryview | None:
        """
        Return a writable view of some bytes, or None for no bytes.

        While it is alive, :meth:`commit` does not move the memory.
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
        Values that the step reads, by position; of nodes that run as one, those from outside,
        each value once.
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
        Return ``(storage id, device number, memory)`` of every block, the largest first; memory
        is a position in ``free``, which has ``(bytes, device number)`` of blocks to use again,
        or a new arena.
        """
    def check_input(self, /, name: str, dtype: str, shape: Sequence[int]) -> None:
        """
        Raise unless there is an input of this name, type and shape.
        """
    @property
    def entries(self, /) -> list[tuple[str, list[int], str, int, int]]:
        """
        ``(name, shape, dtype, storage id, device number)`` of every value.
        """
    @staticmethod
    def from_json(text: str) -> StorageLayout:
        """
        Return the layout of a graph in the JSON form of a graph runtime.
        """
    @staticmethod
    def from_plan(graph: Graph, plan: StoragePlan) -> StorageLayout:
        """
        Return the layout of ``graph`` under ``plan``.
        """
    @property
    def inputs(self, /) -> list[str]:
        """
        Names of the values that the caller supplies.
        """
    @property
    def nodes(
        self, /
    ) -> list[tuple[str, str, list[tuple[int, int, int]], dict[str, str], list[int]]]:
        """
        ``(op, name, inputs, attributes, after)`` of every node, inputs as
        ``(node, output, version)``.
        """
    @property
    def outputs(self, /) -> list[str]:
        """
        Names of the values that the caller receives.
        """
    def to_graph(self, /, name: str, parameters: Sequence[str]) -> Graph:
        """
        Return the graph that the layout was made for; values called like one of ``parameters``
        are constants.
        """
    def to_json(self, /) -> str:
        """
        Return the JSON form of a graph runtime.
        """
    def with_attributes(self, /, attributes: Sequence[tuple[str, dict[str, str]]]) -> StorageLayout:
        """
        Return the layout with more attributes, for nodes by the name of their first result.
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
        Bytes of all blocks that are not the caller's.
        """
    @property
    def blocks(self, /) -> list[Block]:
        """
        The blocks, by number.
        """
    @property
    def colors(self, /) -> list[int] | None:
        """
        Color of every node, by index; None with one color.
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
        Return the plan with blocks for inputs, constants and states, assignments tied to
        their states.

        ``assigns`` is what :func:`arenaplan.classic.find_assigns` returns, for this graph or for the one
        that :func:`arenaplan.classic.order_mutations` made this graph from. Without it the assignments
        are found, where nodes in ``elementwise`` may write an assignment's state themselves;
        effects of the nodes decide if that is None.

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
        Number of results that got no storage.
        """
    @property
    def storage_ids(self, /) -> list[int]:
        """
        Block of every value, by index; -1 unassigned, -2 external, -3 dynamic.
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
        Values that are made in the rows of another one.
        """
    @property
    def node(self, /) -> int:
        """
        Index of the last node of the step.
        """
    @property
    def rows(self, /) -> int:
        """
        Rows of the output that are made at once.
        """

@final
class Target:
    """
    A description of the program that runs a plan.

    ``Target(name, techniques)`` describes another runner, which honors the techniques of that
    list. :func:`arenaplan.targets` lists the known ones.

    Parameters
    ----------
    name : str
        A name that is not one of the known targets'.
    techniques : list of str
        Names of the techniques that the runner honors.
    alignment : int, default 64
        Alignment, in bytes, of offsets that the planner chooses by default.
    scratch : {"graph", "runner", "nobody"}
        The origin of the scratch memory of kernels: nodes declare it before planning, the
        runner adds it by itself, or there is none.
    caller_memory : bool
        Whether inputs and outputs may be in memory of the caller.
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
        Alignment, in bytes, of offsets that the planner chooses by default.
        """
    @property
    def caller_memory(self, /) -> bool:
        """
        Whether inputs and outputs may be in memory of the caller.
        """
    @property
    def fixed(self, /) -> str:
        """
        Origin of the runner's own structures: ``"runner"``, or ``"nobody"`` if it has none.
        """
    @property
    def granularity(self, /) -> str:
        """
        The unit that the runner executes at a time: ``"node"``, ``"group"`` or ``"tile"``.
        """
    @staticmethod
    def known(name: str) -> Target:
        """
        Return the known target of this name.

        Raises
        ------
        InvalidOption
            If there is none; the message lists those that there are.
        """
    @property
    def name(self, /) -> str:
        """
        Name of the target, with the kernels if they are named: ``"tflm:reference"``.
        """
    @property
    def offset_unit(self, /) -> int:
        """
        Number of bytes that every alignment must be a multiple of.
        """
    @property
    def runtime(self, /) -> str:
        """
        Name without the kernels: ``"tflm"``.
        """
    @property
    def scratch(self, /) -> str:
        """
        Origin of the scratch memory of kernels: ``"graph"``, ``"runner"`` or ``"nobody"``.
        """
    @property
    def several_spaces(self, /) -> bool:
        """
        Whether values may be in several spaces.
        """
    @property
    def summary(self, /) -> str:
        """
        One line about the runner; empty for a custom target.
        """
    @property
    def techniques(self, /) -> list[str]:
        """
        Names of the techniques that the runner honors.
        """

@final
class ThreadTeam:
    """
    Threads that divide compiled kernels among them.

    Kernels that are made in a block (``with team:``) by the thread that entered it are divided, as
    far as they are long enough; they keep the threads alive. Results are the same, bit for bit.

    Parameters
    ----------
    threads : int
        Number of threads, the caller's among them.
    """

    def __enter__(self, /) -> ThreadTeam: ...
    def __exit__(self, /, *_exception: object) -> None: ...
    def __new__(cls, /, threads: int) -> ThreadTeam: ...
    def __repr__(self, /) -> str: ...
    @property
    def scratch_bytes(self, /) -> int:
        """
        Bytes of scratch memory of all threads but the caller's.
        """
    @property
    def threads(self, /) -> int:
        """
        Number of threads, the caller's among them.
        """

@final
class Timetable:
    """
    When several workers run the steps of a plan.
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
        By step: its time. Bytes that its nodes touch, unless other costs were given.
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
        By step: the time at which it starts.
        """
    @property
    def work(self, /) -> int:
        """
        Time of all steps one after the other.
        """
    @property
    def workers(self, /) -> int:
        """
        Number of workers.
        """

@final
class Transfer:
    """
    A value that is copied to a slow memory, or back from it, as an entry of a schedule.

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
        Index of the value.
        """
    @property
    def way(self, /) -> str:
        """
        ``"out"`` to the slow memory, or ``"in"``.
        """

@final
class Variable:
    """
    A value that operations of a queue read and write, from :meth:`Queue.variable`.
    """

    def __repr__(self, /) -> str: ...

@final
class Verdict:
    """
    Result of a check about the claims of a valid plan.

    Offsets, live ranges, sharing and sizes of a valid plan are always verified. A claim about
    *all* plans, such as a lower bound, is ``"verified"`` if the checker derived it from the graph,
    and ``"claimed"`` if only the plan states it and nothing contradicts it.
    """

    def __eq__(self, value: object, /) -> bool: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __repr__(self, /) -> str: ...
    @property
    def chose_spaces(self, /) -> bool:
        """
        Whether capacities, alignments and costs of the spaces are those that the plan names, and
        not those of the graph.
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
        Whether the checker derived every claim of the plan.
        """
    @property
    def lower_bound(self, /) -> str:
        """
        Whether ``lower_bound`` of the plan was ``"verified"`` or only ``"claimed"``.
        """
    @property
    def max_live(self, /) -> list[int]:
        """
        Per space the bytes that are live at once at the highest step, as the checker counts them:
        no offsets need fewer. Workspaces count with their smallest sizes.
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
        Whether ``status`` of the plan was ``"verified"`` or only ``"claimed"``.
        """

@final
class WindowSide:
    """
    One spatial dimension of a sliding window.

    Parameters
    ----------
    size : int
        Elements of the input.
    out : int
        Positions of the window.
    kernel : int
        Elements under the window.
    stride : int
        Elements from one position to the next.
    dilation : int
        Elements from one under the window to the next.
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
    Return the color of every node, at most ``num_temp`` colors, and the number of colors.
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
    Return a plan, and the bytes and times of other choices of techniques.
    """

def extra_of_chen(graph: Graph, options: Incomplete, budgets: Sequence[int]) -> list[float | None]:
    """
    Return the extra work of the best schedule of Chen et al. within each of some numbers of bytes,
    or None where there is none.
    """

def find_assigns(graph: Graph, elementwise: Sequence[int] | None = None) -> list[Assign | None]:
    """
    Return per node the assignment that it is, or None if it is none.
    """

def fuse(graph: Graph, kinds: Sequence[str]) -> list[list[int]]:
    """
    Return groups of nodes that can run as one, by kinds of fusion.
    """

def graph_schema() -> str:
    """
    Return the JSON Schema of graph files.
    """

def hazards_schema() -> str:
    """
    Return the JSON Schema of hazards.
    """

def load_params(blob: bytes) -> list[tuple[str, str, list[int], bytes]]:
    """
    Return ``(name, dtype, shape, bytes)`` of every array of a parameter blob.
    """

def model_schema() -> str:
    """
    Return the JSON Schema of model files.
    """

def nodes_in_strips(
    graph: Graph, costs: Any, nodes: Sequence[int], rows: int
) -> tuple[list[int], Strips] | None:
    """
    Return nodes in the order in which they run in strips of so many rows by the row kernels of a
    backend, and the strips; None if they cannot run so.
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
    Pack the buffers of ``problem``.
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
    Return offsets of items of ``sizes`` bytes that obey rules ``(item, other, low, high)``.

    No item begins more than ``low`` and less than ``high`` bytes after the other. The items of each
    of ``orders`` are searched, those of ``last`` are placed after them.
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
    Pack the buffers of a CSV document. The first of ``spaces`` is what those are like that no other
    one describes by name.
    """

def pack_csv_again(
    text: str, old: str, spaces: list[tuple[str, int | None, int, list[tuple[int, int]]]], seed: int
) -> tuple[Packing, list[str], int]:
    """
    Return a packing of a CSV document near that of an ``old`` one, the identifiers of the buffers that
    moved, and the peak of staying.
    """

def pack_csv_blame(
    text: str, spaces: list[tuple[str, int | None, int, list[tuple[int, int]]]]
) -> list[tuple[str, list[str]]]:
    """
    Return the name of each space of a CSV document that is proven too small, with the identifiers of
    buffers that prove it.
    """

def pack_matrix(matrix: ndarray[Any, Any], transposed: bool, target: ndarray[Any, Any]) -> None:
    """
    Write a matrix in the order in which :meth:`CompiledKernel.product` reads it.

    Parameters
    ----------
    matrix : array, shape (depth, columns)
        Of shape (columns, depth) if it is transposed.
    transposed : bool
    target : array
        :func:`packed_matrix` elements.
    """

def pack_quantized(weights: ndarray[Any, Any], target: ndarray[Any, Any], lanes: int) -> None:
    """
    Write weights in the order in which :func:`quantized_conv` reads them.

    Parameters
    ----------
    weights : array of int16, shape (groups, channels, channels of the image, elements of a window)
        Integers less their zero point.
    target : array of int32
        :func:`packed_quantized` elements.
    lanes : int
        :func:`quantized_lanes` of the weights.
    """

def pack_quantized_matrix(matrix: ndarray[Any, Any], target: ndarray[Any, Any], lanes: int) -> None:
    """
    Write a matrix in the order in which :func:`quantized_product` reads it.

    Parameters
    ----------
    matrix : array of int16, shape (depth, columns)
        Integers less their zero point.
    target : array of float32
        :func:`packed_quantized_matrix` elements.
    lanes : int
        :func:`quantized_lanes` of the matrix.
    """

def pack_weights(weights: ndarray[Any, Any], target: ndarray[Any, Any]) -> None:
    """
    Write the weights of a convolution in the order in which :meth:`CompiledKernel.conv` reads them.

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
    Return the number of elements that :func:`pack_quantized` writes for weights of a shape.
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

    ``spaces`` are memories as ``(name, capacity, alignment, cost)``, and ``homes`` pairs of a
    value and the only space that it may be in. ``strips`` says how steps run strip by strip,
    ``node_times`` is the time of each node, and ``costs`` are the costs of steps that a backend
    states. After ``time_limit`` seconds, or when ``on_progress`` returns ``False``, the best plan so
    far is returned.
    """

def plan_schema() -> str:
    """
    Return the JSON Schema of plan files.
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
    Return a convolution of bytes with exact sums.

    Parameters
    ----------
    image : array of uint8, shape (images, channels, ...)
        Signed bytes as their bits.
    encoding : ByteEncoding
        That of the image.
    weights : array of int32
        Those of :func:`pack_quantized`.
    result : ByteResult
    output : array of uint8, shape (images, channels, ...)
    scratch : array of float32
        :attr:`ConvWay.elements` elements of a way.
    rows, columns : WindowSide
        The two spatial dimensions.
    groups : int
    lanes : int
        :func:`quantized_lanes` of the weights.
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
    Return a convolution of every channel of bytes by itself: see :func:`quantized_conv`.

    The output may be the memory of the image, if it has as many channels of the same size. Sums are exact if the absolute values of the terms of each add up to at most 2**24.

    Parameters
    ----------
    weights : array of float32
        One window per channel of the output, of integers less their zero point.
    addend : array of float32, optional
        An integer for each channel of the output, which its sums begin with.
    scratch : array of float32
        :func:`quantized_depthwise_scratch` elements.
    """

def quantized_depthwise_scratch(rows: WindowSide, columns: WindowSide) -> int:
    """
    Return the elements of scratch memory that :func:`quantized_depthwise` needs.
    """

def quantized_lanes(weights: ndarray[Any, Any]) -> int:
    """
    Return how many channels lie in a lane, where this processor multiplies some weights fastest.

    Parameters
    ----------
    weights : array of int16
        Integers less their zero point.
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
    Return the product of rows of bytes and a matrix, with exact sums: see :func:`quantized_conv`.

    Parameters
    ----------
    rows : array of uint8, shape (..., depth)
    matrix : array of float32
        That of :func:`pack_quantized_matrix`.
    result : ByteResult
        Channels are columns.
    output : array of uint8, shape (..., columns)
        May be the memory of the rows.
    scratch : array of float32
        :func:`quantized_product_scratch` elements; those for fewer rows do.
    lanes : int
        :func:`quantized_lanes` of the matrix.
    """

def quantized_product_scratch(rows: int, depth: int, columns: int) -> int:
    """
    Return the elements of scratch memory with which :func:`quantized_product` is fastest.
    """

def quantized_way(
    rows: WindowSide, columns: WindowSide, fan_in: int, fan_out: int, room: int
) -> ConvWay:
    """
    Return the fastest way of :func:`quantized_conv` within some elements of scratch memory, or the
    smallest one.

    Parameters
    ----------
    rows, columns : WindowSide
    fan_in, fan_out : int
        Channels of a group.
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
    Return a parameter blob of ``(name, dtype, shape, bytes)`` rows.
    """

def set_views(html: Any, frame: Any, packing: Any) -> None:
    """
    Hand over the functions that `Plan._repr_html_`, `Plan.to_pandas` and `Packing._repr_html_` call.
    The first ones stay.
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
    Return which values of ``graph`` can share blocks.
    """

def step_times(graph: Graph, plan: Plan, costs: Any) -> list[int]:
    """
    Return the estimated nanoseconds of each step of a plan, by the costs that a backend states.
    """

def targets() -> list[Target]:
    """
    Return the targets that are known, those that can do most first.
    """

def techniques() -> list[str]:
    """
    Return the names of all techniques.
    """

def write_files(files: Sequence[tuple[str | PathLike[str], bytes | bytearray]]) -> None:
    """
    Write files, each given by its path and content.

    A regular file is replaced at once and keeps its mode, through a symbolic link, too; on failure
    it is unchanged. The content of all of them is on disk before the first one is replaced.
    Devices, pipes, and descriptors such as ``/dev/stdout`` are written into.

    Raises
    ------
    PlanWriteError
        If a file cannot be written; the message names it.
    BrokenPipeError
        If a pipe has no reader any more.
    """
