"""Tools: something executable that an agent can call.

Subclass ``BaseTool``, or decorate a function with ``@tool``: the name, description and JSON schema then come from
its signature and docstring. ``call_tool`` runs one call the way every environment should: arguments checked
against the schema, a deadline, a cap on the result, and each failure turned into a message for the model.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, overload

from agentr1_core.errors import PluginError
from agentr1_core.mdp import ToolSpec
from agentr1_core.threads import call_in_thread

if TYPE_CHECKING:
    from pydantic import BaseModel


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a tool may know about the episode that calls it."""

    #: The data row being played.
    task: Mapping[str, Any] = field(default_factory=dict)
    #: ``tools_kwargs[name]`` of the row: this tool's own arguments for this episode.
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    #: Shared by all tools and steps of one episode; yours to write.
    state: MutableMapping[str, Any] = field(default_factory=dict)
    #: What the episode holds: push a callback, or enter a context, and the environment closes it, last in first out,
    #: when the episode ends on whichever path.
    cleanup: AsyncExitStack = field(default_factory=AsyncExitStack)
    #: What must not stand in a run file or a trajectory, such as keys; see ``ToolEnv(secrets_from=...)``.
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class ToolResponse:
    """What a tool answers."""

    text: str
    #: Added to the step's reward when given.
    reward: float | None = None
    #: Ends the episode in a terminal state.
    done: bool = False
    info: Mapping[str, Any] = field(default_factory=dict)


class ToolError(Exception):
    """Raise it in a tool to tell the model, in your words, what went wrong."""


class BaseTool(ABC):
    """Something executable. One instance serves many episodes at once, so keep per-episode data in ``ctx.state``."""

    name: str
    description: str = ""
    #: JSON schema of the arguments.
    parameters: Mapping[str, Any] = {"type": "object", "properties": {}}
    #: Seconds one call may take; ``None`` leaves it to the environment.
    timeout_s: float | None = None

    @abstractmethod
    async def execute(self, args: dict[str, Any], ctx: ToolContext) -> ToolResponse | str:
        """Run one call. ``args`` already fit ``parameters``; a plain string counts as the response's text."""

    async def start(self) -> None:
        """Called before the first episode uses the tool."""

    async def close(self) -> None:
        """Called once when nobody needs the tool any more, on every path."""

    @property
    def spec(self) -> ToolSpec:
        """What the model is shown."""
        return {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}


class ToolSource(ABC):
    """Something that has to be asked which tools it offers, such as an MCP server. A run file names it like a tool."""

    @abstractmethod
    async def start(self) -> Sequence[BaseTool]:
        """Open it and return its tools; they are started and closed with the others, before the source is closed."""

    async def close(self) -> None:
        """Called once when nobody needs its tools any more, on every path."""


class ToolOutcome(StrEnum):
    """How one call ended; each is a counter ``tools/<outcome>``."""

    OK = "ok"
    UNKNOWN_TOOL = "unknown_tool"
    BAD_ARGUMENTS = "bad_arguments"
    FAILED = "failed"  #: the tool raised ToolError
    CRASHED = "crashed"  #: the tool raised anything else
    TIMED_OUT = "timed_out"


@dataclass(frozen=True, slots=True)
class ToolResult:
    """A response and how the call ended."""

    outcome: ToolOutcome
    response: ToolResponse
    #: Whether the text was cut to the cap.
    shortened: bool = False


async def call_tool(
    tools: Mapping[str, BaseTool],
    name: str,
    arguments: dict[str, Any],
    ctx: ToolContext,
    *,
    timeout_s: float | None = None,
    max_chars: int | None = None,
) -> ToolResult:
    """Run one tool call and answer in every case.

    Args:
        tools: The tools on offer, by name.
        name: What the model called.
        arguments: What it passed; checked against the tool's schema.
        ctx: Handed to the tool.
        timeout_s: Deadline in seconds unless the tool has its own.
        max_chars: Longest text shown to the model; the middle of a longer one is left out.

    Returns:
        The outcome with a text for the model. Only cancellation is ever raised.
    """
    tool = tools.get(name)
    if tool is None:
        offered = ", ".join(sorted(tools)) or "none"
        return _failure(ToolOutcome.UNKNOWN_TOOL, f"There is no tool named '{name}'. Tools: {offered}.")
    try:
        problem = check_arguments(tool.parameters, arguments)
    except Exception as error:  # the schema itself is broken
        return _failure(ToolOutcome.CRASHED, f"The tool '{name}' failed: {type(error).__name__}: {error}")
    if problem is not None:
        return _failure(ToolOutcome.BAD_ARGUMENTS, f"Wrong arguments for '{name}': {problem}")
    limit = tool.timeout_s if tool.timeout_s is not None else timeout_s
    deadline = asyncio.timeout(limit)
    try:
        async with deadline:
            # A copy: the call stands in the history too, where a tool must not change it.
            answer = await tool.execute(copy.deepcopy(arguments), ctx)
        response = answer if isinstance(answer, ToolResponse) else ToolResponse(str(answer))
        response = replace(response, text=_text(response.text))
    except ToolError as error:
        return _failure(ToolOutcome.FAILED, f"The tool '{name}' failed: {error}")
    except Exception as error:
        if deadline.expired():
            return _failure(ToolOutcome.TIMED_OUT, f"The tool '{name}' did not answer within {limit:g} seconds.")
        return _failure(ToolOutcome.CRASHED, f"The tool '{name}' failed: {type(error).__name__}: {error}")
    if max_chars is None or len(response.text) <= max_chars:
        return ToolResult(ToolOutcome.OK, response)
    return ToolResult(ToolOutcome.OK, replace(response, text=_shorten(response.text, max_chars)), shortened=True)


def check_arguments(schema: Mapping[str, Any], arguments: Any) -> str | None:
    """What is wrong with ``arguments`` under a JSON schema, in one sentence; ``None`` when nothing is."""
    import jsonschema  # 80 ms: only programs that run tools pay for it

    validator = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)(schema)
    errors = sorted(validator.iter_errors(arguments), key=lambda error: [str(part) for part in error.path])
    if not errors:
        return None
    return "; ".join(
        f"{'.'.join(str(part) for part in error.path) or 'arguments'}: {error.message}" for error in errors[:3]
    )


def _check_schema(item: BaseTool) -> None:
    import jsonschema

    try:
        jsonschema.validators.validator_for(item.parameters, default=jsonschema.Draft202012Validator).check_schema(
            dict(item.parameters)
        )
    except jsonschema.SchemaError as error:
        where = ".".join(str(part) for part in error.path) or "the top"
        raise PluginError(
            f"Tool '{item.name}': its `parameters` are no JSON schema: at {where}: {error.message}",
            "Mend the schema, or let `@tool` derive it.",
        ) from error


def _text(answer: Any) -> str:
    return answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False, default=str)


def _failure(outcome: ToolOutcome, text: str) -> ToolResult:
    return ToolResult(outcome, ToolResponse(text))


def _shorten(text: str, max_chars: int) -> str:
    head, tail = (max_chars + 1) // 2, max_chars // 2
    left_out = len(text) - head - tail
    return f"{text[:head]}\n[... {left_out} characters left out ...]\n{text[len(text) - tail :]}"


class FunctionTool(BaseTool):
    """A plain function as a tool; see ``tool``. A parameter annotated ``ToolContext`` receives the context."""

    def __init__(self, function: Callable[..., Any], *, name: str | None = None, timeout_s: float | None = None):
        self.function = function
        self.name = name or function.__name__
        self.timeout_s = timeout_s
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise PluginError(f"Tool '{self.name}' is a generator.", "Return the whole answer at once.")
        self.description, self.parameters, self._context_parameter, self._model = _describe(function)
        self._is_async = inspect.iscoroutinefunction(function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the decorated function as if it were not decorated."""
        return self.function(*args, **kwargs)

    async def execute(self, args: dict[str, Any], ctx: ToolContext) -> ToolResponse:
        # The function gets what its annotations say: models, enums and dates, not their JSON.
        given = self._model.model_validate(args)
        args = {name: value for name, value in given if name in given.model_fields_set}
        if self._context_parameter is not None:
            args = {**args, self._context_parameter: ctx}
        if self._is_async:
            answer = await self.function(**args)
        else:
            answer = await call_in_thread(self.function, **args)
            if inspect.isawaitable(answer):  # an async function behind a plain decorator
                answer = await answer
        return answer if isinstance(answer, ToolResponse) else ToolResponse(_text(answer))


@overload
def tool(function: Callable[..., Any], /) -> FunctionTool: ...
@overload
def tool(
    *, name: str | None = None, timeout_s: float | None = None
) -> Callable[[Callable[..., Any]], FunctionTool]: ...
def tool(
    function: Callable[..., Any] | None = None, /, *, name: str | None = None, timeout_s: float | None = None
) -> FunctionTool | Callable[[Callable[..., Any]], FunctionTool]:
    """Make a function a tool.

    The name is the function's, the description the docstring's, the schema that of the annotated parameters.
    A synchronous function runs in a thread, so it may block.

    Example::

        @tool
        def add(a: int, b: int) -> int:
            '''Add two numbers.

            Args:
                a: The first one.
                b: The second one.
            '''
            return a + b
    """
    if function is not None:
        return FunctionTool(function, name=name, timeout_s=timeout_s)
    return lambda decorated: FunctionTool(decorated, name=name, timeout_s=timeout_s)


def _describe(function: Callable[..., Any]) -> tuple[str, dict[str, Any], str | None, type[BaseModel]]:
    """Description, JSON schema, name of the context parameter and arguments' model of a function."""
    import docstring_parser
    from pydantic import ConfigDict, Field, create_model

    text = docstring_parser.parse(inspect.getdoc(function) or "")
    about = {parameter.arg_name: parameter.description for parameter in text.params}
    hints = inspect.get_annotations(function, eval_str=True)
    fields: dict[str, Any] = {}
    context_parameter = None
    for parameter in inspect.signature(function).parameters.values():
        hint = hints.get(parameter.name, Any)
        if hint is ToolContext:
            context_parameter = parameter.name
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise PluginError(
                f"Tool '{function.__name__}': parameter '{parameter}' cannot be given by name.",
                "Use ordinary parameters: a model passes its arguments by name.",
            )
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[parameter.name] = (hint, Field(default, description=about.get(parameter.name)))
    model = create_model(function.__name__, __config__=ConfigDict(extra="forbid"), **fields)
    schema = model.model_json_schema()
    schema.pop("title", None)
    for shown in schema.get("properties", {}).values():
        shown.pop("title", None)
    description = "\n\n".join(part for part in (text.short_description, text.long_description) if part)
    return description, schema, context_parameter, model


class ToolBox:
    """Tools opened and closed together, shared by all episodes of a run.

    Args:
        tools: The tools; two of one name are an error. The tools of a source are known once the box is started.
    """

    OPEN_DEADLINE_S: ClassVar[float] = 300.0
    CLOSE_DEADLINE_S: ClassVar[float] = 30.0

    def __init__(self, tools: Sequence[BaseTool | ToolSource]) -> None:
        self._given = [item for item in tools if isinstance(item, BaseTool)]
        self._sources = [item for item in tools if isinstance(item, ToolSource)]
        self.by_name = _by_name(self._given)

    async def start(self) -> None:
        """Start every source and tool; when one fails, those already started are closed again.

        Raises:
            PluginError: A tool's ``parameters`` are no JSON schema, or two tools have one name.
        """
        started: list[BaseTool | ToolSource] = []
        found: list[BaseTool] = []
        for item in self._given:
            _check_schema(item)
        try:
            for source in self._sources:
                async with asyncio.timeout(self.OPEN_DEADLINE_S):
                    found.extend(await source.start())
                started.append(source)
            for item in found:
                _check_schema(item)
            by_name = _by_name([*self._given, *found])
            for item in by_name.values():
                async with asyncio.timeout(self.OPEN_DEADLINE_S):
                    await item.start()
                started.append(item)
        except BaseException:
            await self._close(started)
            raise
        self.by_name = by_name

    async def close(self) -> None:
        """Close every tool, also when one of them fails to; the failures are raised together afterwards."""
        await self._close([*self._sources, *self.by_name.values()])

    async def _close(self, items: Sequence[BaseTool | ToolSource]) -> None:
        async def close_one(item: BaseTool | ToolSource) -> None:
            async with asyncio.timeout(self.CLOSE_DEADLINE_S):
                await item.close()

        failures: list[Exception] = []
        for kind in (BaseTool, ToolSource):  # sources last: their tools may still need them
            closing: list[Awaitable[None]] = [close_one(item) for item in items if isinstance(item, kind)]
            results = await asyncio.gather(*closing, return_exceptions=True)
            failures.extend(result for result in results if isinstance(result, Exception))
        if failures:
            raise ExceptionGroup("some tools did not close", failures)


def _by_name(tools: Sequence[BaseTool]) -> dict[str, BaseTool]:
    by_name: dict[str, BaseTool] = {}
    for item in tools:
        if item.name in by_name:
            raise PluginError(
                f"Two tools are named '{item.name}'.", "Give one of them another name (`@tool(name=...)`)."
            )
        by_name[item.name] = item
    return by_name
