"""The ``python`` tool: a model's code in, what it printed and the value of its last line out.

Run files name it ``python``. Each call starts from nothing; nothing a programme does outlives it. The sandbox is
chosen by name and proved to work before the first episode; without one that works the run does not start.
"""

from __future__ import annotations

from typing import Any

from agentr1_core.errors import ConfigError
from agentr1_core.tool import BaseTool, ToolContext, ToolError, ToolResponse
from agentr1_tools.python.bubblewrap import BubblewrapSandbox
from agentr1_tools.python.monty import MontySandbox
from agentr1_tools.python.sandbox import Limits, Sandbox

#: Longest programme, in characters.
MAX_CODE = 20_000

_ABOUT = {
    "monty": "A subset of Python with math, re, json and datetime; no other modules, no files, no network.",
    "bubblewrap": "Python with its standard library; no network; files only under /tmp, gone afterwards.",
}


class PythonTool(BaseTool):
    """Runs Python code.

    Args:
        sandbox: ``monty`` (an interpreter of its own; starts in about a millisecond) or ``bubblewrap`` (full Python
            in Linux namespaces).
        time_s: Seconds one call may run.
        memory_mb: Megabytes one call may use; with ``bubblewrap`` each of its processes.
        output_bytes: Bytes of printed output that are kept; a programme that prints more is stopped.
        workers: Programmes that run at the same time; more wait.
        processes: Processes and threads of one programme; ``bubblewrap`` only.
        interpreter: The Python to run with its packages; ``bubblewrap`` only.
        tool_name: What the model calls it.

    Raises:
        ConfigError: There is no such sandbox, or a setting does not belong to it.
    """

    parameters = {  # noqa: RUF012
        "type": "object",
        "properties": {
            "code": {"type": "string", "maxLength": MAX_CODE, "description": "The programme; print what you need."}
        },
        "required": ["code"],
        "additionalProperties": False,
    }

    def __init__(
        self,
        *,
        sandbox: str = "monty",
        time_s: float = 5.0,
        memory_mb: int = 256,
        output_bytes: int = 64_000,
        workers: int = 2,
        processes: int | None = None,
        interpreter: str | None = None,
        tool_name: str = "python",
    ) -> None:
        if sandbox not in _ABOUT:
            raise ConfigError(f"`sandbox` of the python tool is '{sandbox}'.", f"Choose one of: {', '.join(_ABOUT)}.")
        if workers < 1:
            raise ConfigError(f"`workers` of the python tool is {workers}.", "Let at least one programme run.")
        if sandbox == "monty" and (processes is not None or interpreter is not None):
            raise ConfigError(
                "`processes` and `interpreter` of the python tool mean nothing to the sandbox 'monty'.",
                "Remove them, or set `sandbox: bubblewrap`.",
            )
        limits = Limits(time_s, memory_mb, output_bytes)
        self.name = tool_name
        self.description = (
            f"Run Python code; answers with what it printed and the value of the last line. {_ABOUT[sandbox]}"
        )
        self.sandbox: Sandbox
        if sandbox == "monty":
            self.sandbox = MontySandbox(limits, workers=workers)
        else:
            self.sandbox = BubblewrapSandbox(
                limits, workers=workers, processes=processes or 16, interpreter=interpreter
            )

    async def start(self) -> None:
        await self.sandbox.start()

    async def close(self) -> None:
        await self.sandbox.close()

    async def execute(self, args: dict[str, Any], ctx: ToolContext) -> ToolResponse:
        ran = await self.sandbox.run(args["code"])
        if ran.error is not None:
            raise ToolError("\n".join(part for part in (ran.output.rstrip("\n"), ran.error) if part))
        return ToolResponse(ran.output or "The programme printed nothing.")
