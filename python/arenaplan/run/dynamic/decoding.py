"""Greedy generation by a language model whose caches stay in the arena."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Self

import numpy as np
from onnx import ModelProto

from arenaplan.base.amounts import whole_number
from arenaplan.base.arguments import typed
from arenaplan.base.errors import InvalidOption, fault
from arenaplan.base.quoting import listed, quoted
from arenaplan.formats.onnx import opened
from arenaplan.formats.onnx.file import read_model
from arenaplan.graph import Graph, keep_caches
from arenaplan.graph.sizes import Source
from arenaplan.run.numpy import Executor

if TYPE_CHECKING:
    from arenaplan._core import Plan

_ONE: Final = ("batch_size", "sequence_length")
_ROOM: Final = ("past_sequence_length", "total_sequence_length")
"""Names of dimensions in models of the tools: those of a step, and those of the caches. The caches
of layers that see a window are as long as this, ``past_sliding_length``."""
_JOINED: Final = "past_sequence_length + sequence_length"
"""The length of caches with new entries behind them, in models that join both."""
_TOKENS, _MASK, _POSITIONS = "input_ids", "attention_mask", "position_ids"
_LOGITS = "logits"


class Decoder:
    """
    Generates tokens with a decoder in the form of ONNX Runtime's tools, one per run.

    Keys and values of earlier tokens are written into states of the arena: no copy per token. The
    model has inputs ``input_ids``, and ``attention_mask`` and ``position_ids`` if it likes; caches
    that it writes over, as those of GroupQueryAttention, or that it joins with new entries, as
    models of Optimum do, if there is a mask; and an output ``logits``.

    Parameters
    ----------
    model : path or bytes
        The model.
    room : int
        Most tokens of a prompt and what is generated.
    bind : mapping, optional
        Numbers for dimensions with names that the tools do not use. The width of heads follows from
        the declared shapes of GroupQueryAttention.

    Raises
    ------
    InvalidOption
        If the model has other inputs or no such cache.
    PlannerError
        As :func:`load`, :func:`keep_caches` and :class:`Executor`.

    Examples
    --------
    >>> import arenaplan as ap
    >>> with ap.Decoder("decoder.onnx", room=256) as decoder:       # doctest: +SKIP
    ...     print(list(decoder.generate([1, 17, 4], 16)))
    """

    @typed
    def __init__(self, model: Source, room: int, bind: Mapping[str, int] | None = None) -> None:
        self.room = whole_number(room, "room")
        if self.room < 1:
            raise InvalidOption("option room: there is no room for a token")
        proto, path, folder = read_model(model)
        graph_with = opened(proto, path, folder)
        usual = {**dict.fromkeys(_ONE, 1), **dict.fromkeys(_ROOM, self.room)}
        usual["past_sliding_length"] = min(self.room, _window(proto) or self.room)
        names = _symbols(proto)
        self._grows = _JOINED in names
        """Whether entries stand at the end of caches, and move when others come."""
        if self._grows:
            usual.update({"past_sequence_length": self.room - 1, _JOINED: self.room})
        usual.update(_widths(proto))
        sizes = {name: size for name, size in usual.items() if name in names}
        graph = keep_caches(graph_with({**sizes, **(bind or {})}))
        chosen = {x for node in proto.graph.node if node.op_type == "If" for x in node.output}
        if chosen:
            lengths = {*_ROOM, _JOINED} & {*sizes}
            short = {**sizes, **dict.fromkeys(lengths, 1)}
            if self._grows:
                short["past_sequence_length"] = 0
            self._compare(chosen, graph, graph_with({**short, **(bind or {})}))
        self._shapes = {graph.values[at].name: graph.values[at].shape for at in graph.inputs}
        self._check(graph)
        self._executor = Executor(graph)

    def _compare(self, chosen: set[str], graph: Graph, short: Graph) -> None:
        """Refuse a model that chooses other constants for a short sequence than for the room."""
        names = {v.name: v for v in short.values if v.kind == "constant"}
        for value in graph.values:
            other = names.get(value.name)
            if value.kind != "constant" or other is None or value.name not in chosen:
                continue
            if not np.array_equal(graph.data(value.index), short.data(other.index)):
                raise InvalidOption(
                    f"option room: with room for {self.room} tokens, the model has another "
                    f"{quoted(value.name)} than for a few tokens, and so would generate other "
                    "tokens; give less room"
                )

    def _check(self, graph: Graph) -> None:
        """Refuse a model that is fed in another way."""
        wanted = {_TOKENS: (1, 1), _MASK: (1, self.room), _POSITIONS: (1, 1)}
        for name, shape in self._shapes.items():
            if wanted.get(name) != shape:
                raise InvalidOption(
                    f"input {quoted(name)} of shape {shape} is none of a decoder's: "
                    f"{listed(wanted)} of shapes {list(wanted.values())}, and caches that are "
                    "written over"
                )
        outputs = {graph.values[at].name for at in graph.outputs}
        if _TOKENS not in self._shapes or _LOGITS not in outputs:
            raise InvalidOption(f"a decoder has an input {_TOKENS!r} and an output {_LOGITS!r}")
        if self._grows and _MASK not in self._shapes:
            raise InvalidOption(f"a decoder that joins caches has an input {_MASK!r}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._executor.__exit__(*raised)

    def close(self) -> None:
        """Let the memory go."""
        self._executor.close()

    @property
    def plan(self) -> Plan:
        """The plan of one step."""
        return self._executor.plan

    def generate(self, prompt: Sequence[int], count: int, stop: int | None = None) -> Iterator[int]:
        """
        Yield the most probable tokens after a prompt, one by one.

        Parameters
        ----------
        prompt : sequence of int
            Tokens, at least one.
        count : int
            Most tokens to yield.
        stop : int, optional
            The token behind which nothing is yielded.

        Raises
        ------
        ExecutionError
            If the prompt is empty, or there is no room for it and all tokens but the last.
        """
        fed = [whole_number(token, "a token") for token in prompt]
        needed = len(fed) + whole_number(count, "count") - 1
        if not fed or needed > self.room:
            raise fault(
                "InputMismatch",
                f"{len(fed)} tokens of a prompt and {count} generated ones need room for {needed}; "
                f"the caches have room for {self.room}",
            )
        self._executor.reset()
        return self._tokens(fed, count, stop)

    def _tokens(self, fed: list[int], count: int, stop: int | None) -> Iterator[int]:
        """Yield tokens; the caches are empty."""
        mask = np.zeros((1, self.room), np.int64)
        graph = self._executor.graph
        dtypes = {graph.values[index].name: graph.values[index].dtype for index in graph.inputs}
        for at in range(len(fed) + count - 1):
            mask[0, self.room - 1 - at if self._grows else at] = 1
            feeds = {_TOKENS: np.array([[fed[at]]]), _MASK: mask, _POSITIONS: np.array([[at]])}
            given = {name: feeds[name].astype(dtypes[name]) for name in self._shapes}
            logits = self._executor.run(given, borrow=True)[_LOGITS]
            if at == len(fed) - 1:
                token = int(logits[0, -1].argmax())
                fed.append(token)
                yield token
                if token == stop:
                    return


def _window(model: ModelProto) -> int:
    """Return the longest window of caches that drop old entries; 0 if there are none."""
    lengths = [0]
    for node in model.graph.node:
        given = {attribute.name: attribute.i for attribute in node.attribute}
        if given.get("sliding_window_cache"):
            lengths.append(given.get("local_window_size", 0))
    return max(lengths)


def _widths(model: ModelProto) -> dict[str, int]:
    """Return the widths of heads that caches have a name for, from the declared attention."""
    infos = {info.name: info for info in (*model.graph.input, *model.graph.value_info)}
    found: dict[str, int] = {}
    for node in model.graph.node:
        heads = next((each.i for each in node.attribute if each.name == "num_heads"), 0)
        cache, made = infos.get([*node.input, *[""] * 4][3]), infos.get([*node.output, ""][0])
        if node.op_type != "GroupQueryAttention" or cache is None or made is None or heads < 1:
            continue
        width, hidden = (info.type.tensor_type.shape.dim[-1:] for info in (cache, made))
        if width and hidden and width[0].dim_param and hidden[0].dim_value:
            found[width[0].dim_param] = hidden[0].dim_value // heads
    return found


def _symbols(model: ModelProto) -> set[str]:
    """Return the names of dimensions of a model's inputs."""
    return {dim.dim_param for info in model.graph.input for dim in info.type.tensor_type.shape.dim}
