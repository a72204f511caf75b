"""The vLLM engine beside the same requests sent straight to its server; its prefix cache; seconds of a weight update.

Run it by hand: ``make bench-vllm``. The last line it prints is one JSON object. One server is started for each model
size. Wall-clock numbers depend on the machine and on what else runs there; the ratios, medians over interleaved
repeats, less so.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from agentr1_core.engine import SamplingParams, WeightSource
from agentr1_engine_vllm import VLLMEngine
from agentr1_engine_vllm.wire import GENERATE, request_body

ROOT = Path(__file__).parents[2]
PYTHON = Path(os.environ.get("AGENTR1_VLLM_PYTHON", ROOT / ".venvs" / "vllm" / "bin" / "python"))
BLOCK = 32
#: Width and depth.
SIZES = {"tiny": (128, 2), "small": (512, 8), "medium": (1024, 10)}


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


async def through_engine(engine: VLLMEngine, prompts: list[np.ndarray], sampling: SamplingParams) -> tuple[float, int]:
    """Seconds and tokens of concurrent calls of the engine."""
    begin = time.perf_counter()
    found = await asyncio.gather(*(engine.generate(p, sampling, session=f"s{i}") for i, p in enumerate(prompts)))
    return time.perf_counter() - begin, sum(len(one.token_ids) for one in found)


async def straight(
    http: httpx.AsyncClient, prompts: list[np.ndarray], sampling: SamplingParams, name: str
) -> tuple[float, int]:
    """Seconds and tokens of the same requests, sent by hand."""

    async def one(number: int, prompt: np.ndarray) -> int:
        body = request_body(f"{name}-{number}", "policy", prompt, sampling, sampling.max_tokens)
        answer = await http.post(GENERATE, json=body)
        answer.raise_for_status()
        return len(answer.json()["choices"][0]["token_ids"])

    begin = time.perf_counter()
    counts = await asyncio.gather(*(one(number, prompt) for number, prompt in enumerate(prompts)))
    return time.perf_counter() - begin, sum(counts)


async def compare(engine: VLLMEngine, args: argparse.Namespace) -> dict[str, Any]:
    """Both ways in turn; ratio of tokens per second."""
    (member,) = engine._fleet.members
    headers = dict(member.client._http.headers)
    ratios, ours, theirs = [], [], []
    sampling = SamplingParams(max_tokens=args.tokens, seed=1)
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(base_url=member.client.url, headers=headers, timeout=600, limits=limits) as http:
        for repeat in range(args.repeats + 1):
            # Other prompts each way, so that neither profits from what the other left in the prefix cache.
            first = await through_engine(engine, random_prompts(args.sequences, 2 * repeat), sampling)
            second = await straight(http, random_prompts(args.sequences, 2 * repeat + 1), sampling, f"r{repeat}")
            if repeat:  # the first round warms up
                ours.append(first[1] / first[0])
                theirs.append(second[1] / second[0])
                ratios.append(ours[-1] / theirs[-1])
    return {
        "engine_tokens_per_s": round(statistics.median(ours)),
        "straight_tokens_per_s": round(statistics.median(theirs)),
        "ratio": round(statistics.median(ratios), 3),
        "ratios": [round(ratio, 3) for ratio in ratios],
    }


async def cached_share(engine: VLLMEngine, args: argparse.Namespace) -> dict[str, float]:
    """Cached prompt tokens of episodes of six turns, against what whole blocks allow."""
    cached = possible = 0

    async def episode(number: int, prompt: np.ndarray) -> None:
        nonlocal cached, possible
        known = 0
        for turn in range(6):
            found = await engine.generate(prompt, SamplingParams(max_tokens=24, seed=turn), session=f"e{number}")
            cached += found.cached_tokens
            possible += known // BLOCK * BLOCK
            known = len(prompt) + len(found.token_ids) - 1  # the last token's keys are never computed
            prompt = np.concatenate([prompt, found.token_ids, np.arange(20, 60, dtype=np.int32)])

    await asyncio.gather(*(episode(i, prompt) for i, prompt in enumerate(random_prompts(args.sequences, 999))))
    return {"cached": cached, "possible": possible, "share": round(cached / possible, 3)}


async def measure(size: str, args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """All measurements of one model size."""
    n = write_model(folder / size, size)
    settings = VLLMEngine.Settings(
        model=str(folder / size), python=PYTHON, dtype="float32", block_size=BLOCK, threads=1, run_dir=folder
    )
    engine = VLLMEngine(settings)
    begin = time.perf_counter()
    try:
        await engine.start()
        result: dict[str, Any] = {"parameters": n, "start_s": round(time.perf_counter() - begin, 1)}
        seconds = []
        for version in range(1, args.repeats + 1):
            begin = time.perf_counter()
            await engine.update_weights(WeightSource("file", path=folder / size), version)
            seconds.append(time.perf_counter() - begin)
        result["update_s"] = round(statistics.median(seconds), 3)
        if size == "tiny":
            result["throughput"] = await compare(engine, args)
            result["prefix_cache"] = await cached_share(engine, args)
    finally:
        await engine.close()
    return result


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--sequences", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for size in args.sizes:
            results[size] = asyncio.run(measure(size, args, Path(folder)))
            print(size, json.dumps(results[size]), flush=True)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
