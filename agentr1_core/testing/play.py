"""Play one episode without a model: a test's answers in, the trajectory out.

The episode runs through the collector as in training; only the engine and the renderer are stand-ins. One character
is one token, so nothing played here can be trained on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentr1_core.blocking import BlockingLoop
from agentr1_core.engine import InferenceEngine, SamplingParams
from agentr1_core.env import AgentEnv
from agentr1_core.env_loop import AgentEnvLoop
from agentr1_core.episode import Policy, RolloutLimits
from agentr1_core.flow import AgentFlowBase
from agentr1_core.mdp import Message, TokenArray, ToolSpec, Trajectory, token_array
from agentr1_core.render import ChatRenderer, Parsed
from agentr1_core.render.contract import assemble
from agentr1_core.rollout import Rollouts
from agentr1_core.task import Task
from agentr1_core.testing.scripted_engine import ScriptedEngine
from agentr1_core.tool_format import HermesFormat

_HERMES = HermesFormat()


def call(name: str, /, **arguments: Any) -> str:
    """A tool call as an answer says it: ``call("search", query="tea")``."""
    return _HERMES.write(name, arguments)


def play(
    what: AgentEnv | AgentFlowBase,
    task: Mapping[str, Any],
    answers: Sequence[str] | Callable[[str], str] | InferenceEngine,
    *,
    limits: RolloutLimits | None = None,
) -> Trajectory:
    """One episode.

    Args:
        what: An environment, or a flow.
        task: The data row to play.
        answers: What the model says, in order; or a function from the prompt's text to the answer; or an engine.
        limits: What the episode may use.

    Raises:
        EnvError: The episode failed; the cause is in the message.
    """
    flow = AgentEnvLoop(lambda _: what) if isinstance(what, AgentEnv) else what
    engine = answers if isinstance(answers, InferenceEngine) else ScriptedEngine(Characters(), answers)
    policy = Policy(engine, PlainRenderer(), SamplingParams(max_tokens=4096))
    rollouts = Rollouts(flow, policy, limits=limits, min_group_size=1)
    loop = BlockingLoop()

    async def one() -> Trajectory:
        try:
            collection = await rollouts.collect([Task(task)], training=False)
        finally:
            await rollouts.close()
        return collection.trajectories[0]

    try:
        return loop.run(one())
    finally:
        loop.close()


class Characters:
    """A tokenizer for tests: the code point of each character, and one id beyond them all that ends an answer."""

    eos_token_id = 0x110000

    def encode(self, text: str) -> list[int]:
        """The code points."""
        return [ord(character) for character in text]

    def decode(self, ids: Sequence[int]) -> str:
        """The characters; the end of an answer is a line break."""
        return "".join(chr(token) if 0 <= token < self.eos_token_id else "\n" for token in ids)


class PlainRenderer(ChatRenderer):
    """``role: content`` line by line, calls in the Hermes format."""

    stop_token_ids = (Characters.eos_token_id,)

    def __init__(self) -> None:
        self._tokenizer = Characters()

    def render(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> TokenArray:
        head = f"{_HERMES.describe(tools)}\n" if tools else ""
        return token_array(self._tokenizer.encode(head + self._lines(messages)))

    def extend(
        self,
        prompt_ids: TokenArray,
        action_ids: TokenArray,
        messages: Sequence[Message],
        new_messages: Sequence[Message],
        tools: Sequence[ToolSpec],
    ) -> TokenArray | None:
        said = action_ids.tolist()
        closing = [] if said and said[-1] in self.stop_token_ids else list(self.stop_token_ids)
        more = self._tokenizer.encode(self._lines(new_messages))
        return token_array([*prompt_ids.tolist(), *said, *closing, *more])

    def parse(
        self, action_ids: TokenArray, prompt_ids: TokenArray, tools: Sequence[ToolSpec], *, first_call: int = 0
    ) -> Parsed:
        text = self._tokenizer.decode([token for token in action_ids.tolist() if token not in self.stop_token_ids])
        found = _HERMES.parse(text)
        calls = [(name, arguments, None) for name, arguments in found.calls]
        return assemble(text, found.content, None, calls, found.failures, first_call)

    @staticmethod
    def _lines(messages: Sequence[Message]) -> str:
        return "".join(_line(message) for message in messages) + "assistant: "


def _line(message: Message) -> str:
    content = message.get("content") or ""
    said = [content if isinstance(content, str) else json.dumps(content)]
    for each in message.get("tool_calls") or ():
        said.append(_HERMES.write(each["function"]["name"], each["function"]["arguments"]))
    return f"{message['role']}: {' '.join(said)}\n"
