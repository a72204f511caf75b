"""The chat engine against vLLM's own ``/v1/chat/completions``; its answers against the tokens of the same server."""

from __future__ import annotations

import numpy as np
import pytest

from agentr1_core.chat_engine import ContextExceeded
from agentr1_core.engine import SamplingParams
from agentr1_core.env_loop import AgentEnvLoop
from agentr1_core.episode import ChatPolicy, RolloutLimits
from agentr1_core.errors import EngineError
from agentr1_core.mdp import StopReason
from agentr1_core.render import create_chat_renderer
from agentr1_core.rollout import Rollouts
from agentr1_core.task import Task
from agentr1_core.testing.chat_engine_kit import ChatEngineKit
from agentr1_core.tool import tool
from agentr1_core.tool_env import ToolEnv
from agentr1_engine_openai import OpenAIEngine
from agentr1_recipes.quickstart.tiny_model import train_tokenizer

SERVED = "policy"


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class TestOpenAIOnVLLM(ChatEngineKit):
    @pytest.fixture(autouse=True, scope="class")
    def _server(self, request, address):
        url, token = address
        request.cls.url = f"{url}/v1"
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("CHAT_KEY", token)
            yield

    def make_engine(self):
        return OpenAIEngine(OpenAIEngine.Settings(model=SERVED, base_url=self.url, api_key_env="CHAT_KEY"))


@pytest.fixture
def chat(address, run, monkeypatch):
    """``chat(messages, model=..., **sampling)``: one reply of the server."""
    url, token = address

    def ask(messages, *, model=SERVED, key=token, **sampling):
        monkeypatch.setenv("CHAT_KEY", key)
        engine = OpenAIEngine(OpenAIEngine.Settings(model=model, base_url=f"{url}/v1", api_key_env="CHAT_KEY"))

        async def work():
            try:
                await engine.start()
                return await engine.chat(messages, (), SamplingParams(**sampling))
            finally:
                await engine.close()

        return run(work())

    return ask


def test_it_says_what_the_token_engine_samples(engine, run, chat):
    """One conversation, once rendered here and once by the server: the same prompt, and the same greedy answer."""
    tokenizer = train_tokenizer()
    messages = [{"role": "user", "content": "3 + 4"}]
    prompt = create_chat_renderer(tokenizer).render(messages, ())
    sampling = {"max_tokens": 24, "temperature": 0.0}

    tokens = run(engine.generate(prompt, SamplingParams(**sampling)))
    reply = chat(messages, **sampling)

    assert reply.usage.prompt == len(prompt)
    assert reply.usage.sampled == len(tokens.token_ids)
    ids = np.array([token for token in tokens.token_ids if token not in tokenizer.all_special_ids])
    assert reply.text.strip() == tokenizer.decode(ids).strip()


def test_a_seed_repeats_itself(engine, chat):
    messages = [{"role": "user", "content": "5 + 6"}]
    first, second, other = (chat(messages, max_tokens=16, seed=seed).text for seed in (1, 1, 2))

    assert first == second != other


def test_a_full_context_and_wrong_names_are_told_apart(engine, chat):
    long = [{"role": "user", "content": "1 + 2 " * 3000}]
    with pytest.raises(ContextExceeded, match="context"):
        chat(long)
    with pytest.raises(EngineError, match=r"model 'nobody': not found \(HTTP 404\)") as unknown:
        chat([{"role": "user", "content": "Hi"}], model="nobody")
    assert SERVED in unknown.value.mend
    with pytest.raises(EngineError, match=r"access is refused \(HTTP 401\)"):
        chat([{"role": "user", "content": "Hi"}], key="wrong")


def test_episodes_with_tools_are_played(engine, run, address, monkeypatch):
    url, token = address
    monkeypatch.setenv("CHAT_KEY", token)
    settings = OpenAIEngine.Settings(model=SERVED, base_url=f"{url}/v1", api_key_env="CHAT_KEY")
    policy = ChatPolicy(OpenAIEngine(settings), SamplingParams(max_tokens=12))
    flow = AgentEnvLoop(lambda _: ToolEnv([add]))
    rollouts = Rollouts(flow, policy, limits=RolloutLimits(max_steps=2), min_group_size=1, seed=0)

    async def work():
        try:
            return await rollouts.collect([Task({"prompt": f"{n} + 4"}) for n in range(6)], training=False)
        finally:
            await rollouts.close()

    collection = run(work())

    assert not collection.failed
    for trajectory in collection.trajectories:
        assert trajectory.stop_reason in (StopReason.TERMINATED, StopReason.MAX_STEPS)
        assert not trajectory.is_trainable
        assert all(step.n_prompt > 0 and 0 < step.action.n_sampled <= 12 for step in trajectory.steps)
