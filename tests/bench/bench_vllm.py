"""The vLLM engine beside the same requests sent straight to its server; its prefix cache; seconds of a weight update.

Run it by hand: ``make bench-vllm``. The last line it prints is one JSON object. One server is started for each model
size. Seconds depend on the machine and on what else runs there. What is compared: see ``served_bench``.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import httpx
import numpy as np
from served_bench import ROOT, Ask, Server, main

from agentr1_core.engine import SamplingParams
from agentr1_engine_vllm import VLLMEngine
from agentr1_engine_vllm.wire import GENERATE, request_body

PYTHON = Path(os.environ.get("AGENTR1_VLLM_PYTHON", ROOT / ".venvs" / "vllm" / "bin" / "python"))
BLOCK = 32


def start(model: Path, run_dir: Path) -> VLLMEngine:
    """An engine that starts a server, not started."""
    settings = VLLMEngine.Settings(
        model=str(model),
        python=PYTHON,
        dtype="float32",
        block_size=BLOCK,
        threads=1,
        weight_sync="broadcast",
        run_dir=run_dir,
    )
    return VLLMEngine(settings)


def straight(http: httpx.AsyncClient) -> Ask:
    """Sends the same request by hand and reads nothing but the tokens."""
    numbers = itertools.count()

    async def ask(prompt: np.ndarray, sampling: SamplingParams, session: str) -> list[int]:
        body = request_body(f"straight-{next(numbers)}", "policy", prompt, sampling, sampling.max_tokens)
        answer = await http.post(GENERATE, json=body)
        answer.raise_for_status()
        ids: list[int] = answer.json()["choices"][0]["token_ids"]
        return ids

    return ask


SERVER = Server(start, straight, "/reset_prefix_cache", BLOCK, seeds=True)

if __name__ == "__main__":
    main(SERVER, __doc__)
