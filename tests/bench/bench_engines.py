"""vLLM, SGLang and the embedded engine side by side: the same episodes of the same model, and seconds of an update.

Run it by hand: ``make bench-engines``. The last line it prints is one JSON object. All three run on one thread in
float32, one after the other in each round, and the order turns from round to round; medians over rounds are told, in
tokens a second and in tokens a CPU second, which other programs hardly touch.
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

import bench_sglang
import bench_vllm
import psutil
from served_bench import SIZES, cpu_seconds, episodes, random_prompts, through_engine, write_model

from agentr1_core.engine import InferenceEngine, WeightSource
from agentr1_core.serving import ServedEngine
from agentr1_engine_transformers.engine import TransformersEngine
from agentr1_engine_transformers.settings import EngineSettings


def all_engines(model: Path, run_dir: Path) -> dict[str, InferenceEngine]:
    """Not started."""
    embedded = EngineSettings(model=str(model), device="cpu", dtype="float32")
    return {
        "vllm": bench_vllm.start(model, run_dir),
        "sglang": bench_sglang.start(model, run_dir),
        "transformers": TransformersEngine(embedded),
    }


def cpu_of(engine: InferenceEngine) -> float:
    """CPU seconds of this process, and of the server behind an engine that has one; other servers do not count."""
    used = time.process_time()
    if isinstance(engine, ServedEngine):
        used += cpu_seconds(psutil.Process(engine._managed._process._process.pid))
    return used


async def measure(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Tokens a second and seconds of an update of each engine."""
    n = write_model(folder / args.size, args.size)
    engines = all_engines(folder / args.size, folder)
    tokens = args.sequences * args.turns * args.tokens
    speeds: dict[str, list[float]] = {name: [] for name in engines}
    cheap: dict[str, list[float]] = {name: [] for name in engines}
    updates: dict[str, list[float]] = {name: [] for name in engines}
    starts = {}
    try:
        for name, engine in engines.items():
            begin = time.perf_counter()
            await engine.start()
            starts[name] = round(time.perf_counter() - begin, 1)
        for number in range(args.rounds + 1):
            order = list(engines)
            for name in order[number % 3 :] + order[: number % 3]:
                engine = engines[name]
                begin = time.perf_counter()
                await engine.update_weights(WeightSource("file", path=folder / args.size), number)
                updated = time.perf_counter() - begin
                cpu, begin = cpu_of(engine), time.perf_counter()
                await episodes(through_engine(engine), random_prompts(args.sequences, number), args, seeds=False)
                took, used = time.perf_counter() - begin, cpu_of(engine) - cpu
                if number:  # the first round warms up
                    speeds[name].append(tokens / took)
                    cheap[name].append(tokens / used)
                    updates[name].append(updated)
    finally:
        for engine in engines.values():
            await engine.close()
    return {
        "parameters": n,
        "rounds": args.rounds,
        "tokens_per_round": tokens,
        "load": [round(value, 1) for value in os.getloadavg()],
        "start_s": starts,
        "tokens_per_s": {name: round(statistics.median(found)) for name, found in speeds.items()},
        "tokens_per_cpu_s": {name: round(statistics.median(found)) for name, found in cheap.items()},
        "update_s": {name: round(statistics.median(found), 3) for name, found in updates.items()},
    }


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=SIZES, default="tiny")
    parser.add_argument("--sequences", type=int, default=16, help="concurrent episodes")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=32, help="of one action")
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(asyncio.run(measure(args, Path(folder)))))


if __name__ == "__main__":
    main()
