"""What the benches of engines with servers share: the same episodes sent through an engine and straight to its server.

``bench_vllm`` and ``bench_sglang`` say how their server is started and asked by hand. What is compared runs in many
short pairs of the very same work, one way right after the other, and only ratios within pairs count; beside them stand
ratios of CPU seconds, which other programs hardly touch.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil

from agentr1_core.engine import InferenceEngine, SamplingParams, WeightSource
from agentr1_core.serving import ServedEngine

ROOT = Path(__file__).parents[2]
#: Samples one action: prompt, how, and the episode's name.
Ask = Callable[[np.ndarray, SamplingParams, str], Awaitable[list[int]]]
#: Width and depth.
SIZES = {"tiny": (128, 2), "small": (512, 8), "medium": (1024, 10)}


@dataclass(frozen=True, slots=True)
class Server:
    """One kind of server."""

    #: The engine that starts it: folder of the model, folder for its log.
    engine: Callable[[Path, Path], ServedEngine]
    #: Asks it by hand, over this connection.
    straight: Callable[[httpx.AsyncClient], Ask]
    #: The route that empties its prefix cache.
    flush: str
    #: Tokens of a block of its prefix cache.
    block: int
    #: Whether it follows seeds; without, greedy episodes make both ways the same work.
    seeds: bool


def write_model(folder: Path, size: str) -> int:
    """Random weights that never stop by themselves; the number of parameters."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    from agentr1_recipes.quickstart.tiny_model import train_tokenizer

    hidden, layers = SIZES[size]
    tokenizer = train_tokenizer()
    config = Qwen3Config(
        vocab_size=len(tokenizer), hidden_size=hidden, intermediate_size=3 * hidden, num_hidden_layers=layers,
        num_attention_heads=hidden // 32, num_key_value_heads=hidden // 32, head_dim=32, max_position_embeddings=2048,
        initializer_range=0.2, tie_word_embeddings=True, bos_token_id=None, eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(config)
    with torch.no_grad():
        model.model.embed_tokens.weight[tokenizer.eos_token_id] = 0.0
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return int(model.num_parameters())


def random_prompts(n: int, seed: int) -> list[np.ndarray]:
    """Prompts of 64 to 128 tokens."""
    rng = np.random.default_rng(seed)
    return [rng.integers(10, 400, rng.integers(64, 129)).astype(np.int32) for _ in range(n)]


async def episodes(ask: Ask, prompts: list[np.ndarray], args: argparse.Namespace, seeds: bool) -> list[list[int]]:
    """The tokens of concurrent episodes whose context grows by what was said and told, the same ones each time."""

    async def episode(number: int, prompt: np.ndarray) -> list[int]:
        said: list[int] = []
        for turn in range(args.turns):
            how = {"seed": number * args.turns + turn} if seeds else {"temperature": 0.0}
            sampling = SamplingParams(max_tokens=args.tokens, **how)
            ids = await ask(prompt, sampling, f"s{number}")
            said += ids
            prompt = np.concatenate([prompt, np.asarray(ids, np.int32), np.arange(20, 36, dtype=np.int32)])
        return said

    return list(await asyncio.gather(*(episode(number, prompt) for number, prompt in enumerate(prompts))))


def through_engine(engine: InferenceEngine) -> Ask:
    """Asks the plugin."""

    async def ask(prompt: np.ndarray, sampling: SamplingParams, session: str) -> list[int]:
        found = await engine.generate(prompt, sampling, session=session)
        ids: list[int] = found.token_ids.tolist()
        return ids

    return ask


@dataclass(frozen=True, slots=True)
class Arm:
    """One way, once: what it took and what it gave."""

    seconds: float
    server_cpu_s: float
    client_cpu_s: float
    said: list[list[int]]


async def run_arm(
    kind: Server, ask: Ask, http: httpx.AsyncClient, server: psutil.Process, seed: int, args: argparse.Namespace
) -> Arm:
    """All episodes, from an empty prefix cache."""
    (await http.post(kind.flush)).raise_for_status()
    prompts = random_prompts(args.sequences, seed)
    cpu, own, begin = cpu_seconds(server), time.process_time(), time.perf_counter()
    said = await episodes(ask, prompts, args, kind.seeds)
    end, own_end = time.perf_counter(), time.process_time()
    return Arm(end - begin, cpu_seconds(server) - cpu, own_end - own, said)


def cpu_seconds(process: psutil.Process) -> float:
    """CPU seconds of a process and all it started, user's and system's."""
    total = 0.0
    for one in (process, *process.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            used = one.cpu_times()
            total += used.user + used.system
    return total


def summary(ratios: list[float]) -> dict[str, Any]:
    """Median of pairwise ratios, and a 95 % interval of it by the bootstrap."""
    values = np.asarray(ratios)
    drawn = np.random.default_rng(0).choice(values, (10_000, len(values)))
    low, high = np.quantile(np.median(drawn, axis=1), [0.025, 0.975])
    return {"median": round(float(np.median(values)), 3), "interval": [round(float(low), 3), round(float(high), 3)]}


async def compare(kind: Server, engine: ServedEngine, args: argparse.Namespace) -> dict[str, Any]:
    """Pairs of both ways, one right after the other and in turn first: what is told are ratios within pairs."""
    (member,) = engine._fleet.members
    headers = dict(member.client._http.headers)
    server = psutil.Process(engine._managed._process._process.pid)
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    ours, theirs = [], []
    async with httpx.AsyncClient(base_url=member.client.url, headers=headers, timeout=600, limits=limits) as http:
        ways = {"ours": (through_engine(engine), ours), "theirs": (kind.straight(http), theirs)}
        for pair in range(-1, args.pairs):
            for name in ("ours", "theirs") if pair % 2 else ("theirs", "ours"):
                ask, arms = ways[name]
                arms.append(await run_arm(kind, ask, http, server, pair + 1, args))
            if ours[-1].said != theirs[-1].said:
                raise SystemExit("The two ways gave other tokens: they are not the same work.")
    ours, theirs = ours[1:], theirs[1:]  # the first pair warms up
    tokens = args.sequences * args.turns * args.tokens
    return {
        "pairs": args.pairs,
        "tokens_per_arm": tokens,
        "load": [round(value, 1) for value in os.getloadavg()],
        "engine_tokens_per_s": round(statistics.median(tokens / arm.seconds for arm in ours)),
        "straight_tokens_per_s": round(statistics.median(tokens / arm.seconds for arm in theirs)),
        "tokens_per_s_ratio": summary([b.seconds / a.seconds for a, b in zip(ours, theirs, strict=True)]),
        "server_cpu_ratio": summary([a.server_cpu_s / b.server_cpu_s for a, b in zip(ours, theirs, strict=True)]),
        "client_cpu_ratio": summary([a.client_cpu_s / b.client_cpu_s for a, b in zip(ours, theirs, strict=True)]),
        "all_cpu_ratio": summary(
            [
                (a.server_cpu_s + a.client_cpu_s) / (b.server_cpu_s + b.client_cpu_s)
                for a, b in zip(ours, theirs, strict=True)
            ]
        ),
        "client_ms_per_call": round(
            1000 * statistics.median(arm.client_cpu_s for arm in ours) / (args.sequences * args.turns), 2
        ),
    }


async def cached_share(kind: Server, engine: ServedEngine, args: argparse.Namespace) -> dict[str, float]:
    """Cached prompt tokens of episodes of six turns, against what whole blocks allow."""
    cached = possible = 0

    async def episode(number: int, prompt: np.ndarray) -> None:
        nonlocal cached, possible
        known = 0
        for turn in range(6):
            sampling = SamplingParams(max_tokens=24, seed=turn if kind.seeds else None)
            found = await engine.generate(prompt, sampling, session=f"e{number}")
            cached += found.cached_tokens
            possible += known // kind.block * kind.block
            known = len(prompt) + len(found.token_ids) - 1  # the last token's keys are never computed
            prompt = np.concatenate([prompt, found.token_ids, np.arange(20, 60, dtype=np.int32)])

    await asyncio.gather(*(episode(i, prompt) for i, prompt in enumerate(random_prompts(args.sequences, 999))))
    return {"cached": cached, "possible": possible, "share": round(cached / possible, 3)}


async def seconds_of_updates(engine: InferenceEngine, weights: WeightSource, n: int) -> float:
    """Median seconds of an update of the weights."""
    seconds = []
    for version in range(1, n + 1):
        begin = time.perf_counter()
        await engine.update_weights(weights, version)
        seconds.append(time.perf_counter() - begin)
    return round(statistics.median(seconds), 3)


async def measure(kind: Server, size: str, args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """All measurements of one model size."""
    n = write_model(folder / size, size)
    engine = kind.engine(folder / size, folder)
    begin = time.perf_counter()
    try:
        await engine.start()
        result: dict[str, Any] = {"parameters": n, "start_s": round(time.perf_counter() - begin, 1)}
        from safetensors.torch import load_file

        file = WeightSource("file", path=folder / size)
        tensors = WeightSource("state_dict", tensors=load_file(folder / size / "model.safetensors"))
        result["update_s"] = {
            "file": await seconds_of_updates(engine, file, args.updates),
            "broadcast": await seconds_of_updates(engine, tensors, args.updates),
        }
        if size == "tiny":
            result["throughput"] = await compare(kind, engine, args)
            result["prefix_cache"] = await cached_share(kind, engine, args)
    finally:
        await engine.close()
    return result


def main(kind: Server, description: str | None) -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--sequences", type=int, default=16, help="concurrent episodes")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=32, help="of one action")
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--updates", type=int, default=7)
    args = parser.parse_args()
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for size in args.sizes:
            results[size] = asyncio.run(measure(kind, size, args, Path(folder)))
            print(size, json.dumps(results[size]), flush=True)
    print(json.dumps(results))
