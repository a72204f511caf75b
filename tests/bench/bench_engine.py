"""Speed of the embedded engine beside ``model.generate``, on the same prompts and lengths in the same run.

Run it by hand: ``python tests/bench/bench_engine.py``. The last line it prints is one JSON object. Wall-clock
numbers depend on the machine and on what else runs there; the ratios, medians over interleaved repeats, less so.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from agentr1_core.engine import SamplingParams
from agentr1_engine_transformers import TransformersEngine

SIZES = {"tiny": (96, 192, 2), "small": (256, 768, 6), "medium": (512, 1408, 8)}


def build_model(size: str, vocab_size: int) -> Qwen2ForCausalLM:
    """A Qwen2 with random weights that never stops by itself."""
    hidden, inner, layers = SIZES[size]
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=vocab_size,
        hidden_size=hidden,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 32,
        num_key_value_heads=max(1, hidden // 64),
        max_position_embeddings=8192,
        eos_token_id=None,
        bos_token_id=None,
        pad_token_id=0,
    )
    return Qwen2ForCausalLM(config).eval()


def random_prompts(n: int, low: int, high: int, vocab_size: int, seed: int) -> list[np.ndarray]:
    """Prompts of ``low`` to ``high`` tokens (included)."""
    rng = np.random.default_rng(seed)
    return [rng.integers(3, vocab_size, rng.integers(low, high + 1)).astype(np.int32) for _ in range(n)]


def plain_generate(model: Any, prompts: list[np.ndarray], n_tokens: int) -> float:
    """Seconds of one batched ``model.generate`` that samples from the whole distribution, without log-probs."""
    width = max(map(len, prompts))
    ids = torch.zeros(len(prompts), width, dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, width - len(prompt) :] = torch.from_numpy(prompt)
        mask[row, width - len(prompt) :] = 1
    begin = time.perf_counter()
    out = model.generate(
        input_ids=ids, attention_mask=mask, do_sample=True, top_k=0, top_p=1.0, max_new_tokens=n_tokens
    )
    seconds = time.perf_counter() - begin
    if out.shape[1] != width + n_tokens:
        raise RuntimeError("model.generate stopped early, so the comparison is void")
    return seconds


async def engine_generate(engine: TransformersEngine, prompts: list[np.ndarray], n_tokens: int) -> float:
    """Seconds of the same by concurrent calls, log-probs included."""
    sampling = SamplingParams(max_tokens=n_tokens)
    begin = time.perf_counter()
    generations = await asyncio.gather(*(engine.generate(prompt, sampling) for prompt in prompts))
    seconds = time.perf_counter() - begin
    if any(len(generation.token_ids) != n_tokens for generation in generations):
        raise RuntimeError("the engine stopped early, so the comparison is void")
    return seconds


async def compare(model: Any, args: argparse.Namespace, low: int, high: int) -> dict[str, Any]:
    """Engine and ``model.generate`` in turn, ``args.repeats`` times; ratio of tokens per second."""
    engine = TransformersEngine.sharing(model, settings=TransformersEngine.Settings(threads=args.threads))
    await engine.start()
    ratios, engine_rates, plain_rates = [], [], []
    n = args.sequences * args.tokens
    for repeat in range(args.repeats + 1):
        prompts = random_prompts(args.sequences, low, high, args.vocab, seed=repeat)
        ours = await engine_generate(engine, prompts, args.tokens)
        theirs = plain_generate(model, prompts, args.tokens)
        if repeat:  # the first round warms up
            ratios.append(theirs / ours)
            engine_rates.append(n / ours)
            plain_rates.append(n / theirs)
    await engine.close()
    return {
        "prompt_tokens": [low, high],
        "engine_tokens_per_s": round(statistics.median(engine_rates)),
        "generate_tokens_per_s": round(statistics.median(plain_rates)),
        "ratio": round(statistics.median(ratios), 3),
        "ratios": [round(ratio, 3) for ratio in ratios],
    }


async def scaling(model: Any, args: argparse.Namespace) -> dict[str, float]:
    """Microseconds per sampled token for 1 to 64 episodes at once."""
    engine = TransformersEngine.sharing(model, settings=TransformersEngine.Settings(threads=args.threads))
    await engine.start()
    cost = {}
    for n in (1, 2, 4, 8, 16, 32, 64):
        rounds = []
        for repeat in range(args.repeats):
            prompts = random_prompts(n, 64, 64, args.vocab, seed=repeat)
            rounds.append(await engine_generate(engine, prompts, args.tokens))
        cost[str(n)] = round(1e6 * statistics.median(rounds) / (n * args.tokens), 1)
    await engine.close()
    return cost


async def episodes(model: Any, args: argparse.Namespace, *, prefix_cache: bool) -> tuple[float, float]:
    """Seconds and share of cached prompt tokens of 32 episodes of eight turns whose contexts are continued."""
    settings = TransformersEngine.Settings(prefix_cache=prefix_cache, threads=args.threads)
    engine = TransformersEngine.sharing(model, settings=settings)
    await engine.start()
    cached = total = 0

    async def episode(name: str, prompt: np.ndarray) -> None:
        nonlocal cached, total
        for turn in range(8):
            generation = await engine.generate(prompt, SamplingParams(max_tokens=16, seed=turn), session=name)
            cached, total = cached + generation.cached_tokens, total + len(prompt)
            prompt = np.concatenate([prompt, generation.token_ids, np.arange(3, 51, dtype=np.int32)])

    begin = time.perf_counter()
    await asyncio.gather(
        *(episode(f"e{i}", prompt) for i, prompt in enumerate(random_prompts(32, 128, 128, args.vocab, 0)))
    )
    seconds = time.perf_counter() - begin
    await engine.close()
    return seconds, cached / total


async def multi_turn(model: Any, args: argparse.Namespace) -> dict[str, Any]:
    """Continued contexts with and without the prefix cache, in turn."""
    with_cache, without = [], []
    share = 0.0
    for _ in range(args.repeats):
        seconds, share = await episodes(model, args, prefix_cache=True)
        with_cache.append(seconds)
        seconds, _none = await episodes(model, args, prefix_cache=False)
        without.append(seconds)
    speedups = [slow / fast for slow, fast in zip(without, with_cache, strict=True)]
    return {
        "seconds_with": round(statistics.median(with_cache), 3),
        "seconds_without": round(statistics.median(without), 3),
        "speedup": round(statistics.median(speedups), 2),
        "cached_share_of_prompt": round(share, 3),
    }


async def run(args: argparse.Namespace) -> dict[str, Any]:
    """All measurements of one model size."""
    torch.set_num_threads(args.threads)
    model = build_model(args.size, args.vocab)
    parts: dict[str, Callable[[], Awaitable[Any]]] = {
        "same_length": lambda: compare(model, args, 64, 64),
        "mixed_lengths": lambda: compare(model, args, 16, 128),
        "us_per_token_by_episodes": lambda: scaling(model, args),
        "multi_turn": lambda: multi_turn(model, args),
    }
    result: dict[str, Any] = {
        "model": args.size,
        "parameters": model.num_parameters(),
        "sequences": args.sequences,
        "tokens": args.tokens,
        "threads": args.threads,
        "torch": torch.__version__,
    }
    for name, measure in parts.items():
        result[name] = await measure()
        print(name, json.dumps(result[name]), flush=True)
    return result


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=SIZES, default="tiny")
    parser.add_argument("--sequences", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--vocab", type=int, default=512)
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of either side")
    parser.add_argument("--repeats", type=int, default=5)
    print(json.dumps(asyncio.run(run(parser.parse_args()))))


if __name__ == "__main__":
    main()
