"""What the episode loop costs on top of the engine, and by itself.

Two figures, each from one run: tokens a second of rollouts through the collector divided by those of the same
requests sent straight to the engine, for a small model; and the collector's own time for one turn, with an engine
that answers at once. Prints one JSON object as its last line.

    make bench-loop
"""

from __future__ import annotations

import asyncio
import json
import statistics
import tempfile
import time
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from agentr1_core import AgentEnv, AgentEnvLoop, Policy, RolloutLimits, Rollouts, Task
from agentr1_core.blocking import BlockingLoop
from agentr1_core.engine import SamplingParams
from agentr1_core.render import create_chat_renderer
from agentr1_core.testing.scripted_engine import ScriptedEngine
from agentr1_engine_transformers.engine import TransformersEngine
from agentr1_recipes.quickstart.tiny_model import write_tiny_model

TURNS, TOKENS, REPEATS = 5, 16, 3
#: Name, width, depth and episodes of the models measured.
SIZES = (("tiny", 96, 2, 128), ("small", 256, 4, 32))


class Talk(AgentEnv):
    """Goes on for a number of turns; ``append`` decides whether the context grows or is rewritten."""

    def __init__(self, append: bool) -> None:
        self.append = append

    async def reset(self, task):
        self.turn = 0
        self.messages = [{"role": "user", "content": "have 7 todo 3 5"}]
        return self.messages

    async def step(self, action):
        self.turn += 1
        new = {"role": "user", "content": f"have {self.turn} todo 3 5"}
        self.messages = [*self.messages, action.message, new] if self.append else [new]
        return self.messages, 0.0, self.turn == TURNS, False, {}


def compare(loop, engine, renderer, append, episodes):
    """Seconds through the collector and seconds straight, for the very same requests in the same order of turns."""
    sampling = SamplingParams(max_tokens=TOKENS)
    policy = Policy(engine, renderer, sampling)
    flow = AgentEnvLoop(lambda task: Talk(append))
    rollouts = Rollouts(flow, policy, limits=RolloutLimits(max_steps=TURNS), seed=0)
    start = time.perf_counter()
    collection = loop.run(rollouts.collect([Task({})] * episodes, stream="bench"))
    through = time.perf_counter() - start
    sampled = sum(trajectory.n_sampled for trajectory in collection.trajectories)

    async def straight():
        async def episode(trajectory):
            for turn, step in enumerate(trajectory.steps):
                params = SamplingParams(
                    max_tokens=TOKENS, seed=step.action.sampling["seed"], stop_token_ids=renderer.stop_token_ids
                )
                generation = await engine.generate(step.prompt_ids, params, session=f"straight/{trajectory.id}")
                if generation.token_ids.tolist() != step.action.token_ids.tolist():
                    raise RuntimeError(f"turn {turn} of {trajectory.id} was sampled differently")

        await asyncio.gather(*(episode(trajectory) for trajectory in collection.trajectories))

    start = time.perf_counter()
    loop.run(straight())
    return {"through_s": through, "straight_s": time.perf_counter() - start, "sampled": sampled}


def own_cost(loop, tokenizer, renderer):
    """Microseconds of the collector for one turn, with an engine that answers at once."""
    policy = Policy(ScriptedEngine(tokenizer, ["x" * 8]), renderer, SamplingParams(max_tokens=TOKENS))
    rollouts = Rollouts(AgentEnvLoop(lambda task: Talk(append=True)), policy, limits=RolloutLimits(max_steps=TURNS))
    start = time.perf_counter()
    loop.run(rollouts.collect([Task({})] * 128))
    return (time.perf_counter() - start) / (128 * TURNS) * 1e6


def load(hidden, layers):
    """The quick start's model, or a wider and deeper one on the same tokenizer."""
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        write_tiny_model(Path(folder), seed=0, hidden=hidden, layers=layers)
        return AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)


def main():
    loop = BlockingLoop()
    figures = {"turns": TURNS, "max_tokens": TOKENS, "repeats": REPEATS}
    for size, hidden, layers, episodes in SIZES:
        model, tokenizer = load(hidden, layers)
        renderer = create_chat_renderer(tokenizer)
        engine = TransformersEngine.sharing(model)
        loop.run(engine.start())
        for name, append in (("append", True), ("rewrite", False)):
            compare(loop, engine, renderer, append, episodes)
            runs = [compare(loop, engine, renderer, append, episodes) for _ in range(REPEATS)]
            ratio = statistics.median(run["straight_s"] / run["through_s"] for run in runs)
            speed = statistics.median(run["sampled"] / run["through_s"] for run in runs)
            figures[f"{size}_{name}"] = {
                "parameters": model.num_parameters(),
                "episodes": episodes,
                "tokens_per_s_ratio": round(ratio, 3),
                "tokens_per_s": round(speed),
            }
            print(f"{size} {name}: {ratio:.3f} of the engine's own speed, {speed:.0f} tokens/s", flush=True)
        loop.run(engine.close())
    costs = [own_cost(loop, tokenizer, renderer) for _ in range(REPEATS)]
    figures["own_cost_us_per_turn"] = round(statistics.median(costs), 1)
    print(f"own cost: {figures['own_cost_us_per_turn']} us a turn")
    loop.close()
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
