"""One real vLLM server for all tests here, in an environment of its own; tests talk to it over HTTP.

Run them with ``make test-vllm``, which makes that environment. The models come from ../conftest.py.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from agentr1_core.blocking import BlockingLoop
from agentr1_core.engine import WeightSource
from agentr1_engine_vllm import VLLMEngine

ROOT = Path(__file__).parents[3]
PYTHON = Path(os.environ.get("AGENTR1_VLLM_PYTHON", ROOT / ".venvs" / "vllm" / "bin" / "python"))
BLOCK = 32


@pytest.fixture(scope="session")
def adapters(other, tmp_path_factory):
    """Two pairs of folders: a LoRA adapter on top of ``other``, and the whole model with it merged."""
    from peft import LoraConfig, get_peft_model

    def write(seed):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_pretrained(other, dtype="float32")
        config = LoraConfig(
            r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "down_proj"], init_lora_weights=False
        )
        model = get_peft_model(model, config)
        adapter, merged = tmp_path_factory.mktemp("adapter"), tmp_path_factory.mktemp("merged")
        model.save_pretrained(adapter)
        model.merge_and_unload().save_pretrained(merged)
        return adapter, merged

    return write(1), write(2)


@pytest.fixture(scope="session")
def served(base, tmp_path_factory):
    """The event loop and the engine that started the server."""
    assert PYTHON.exists(), f"{PYTHON} is missing: run `make test-vllm`"
    loop = BlockingLoop()
    engine = VLLMEngine(
        VLLMEngine.Settings(
            model=str(base),
            python=PYTHON,
            dtype="float32",
            block_size=BLOCK,
            kv_cache_gib=0.25,
            threads=1,
            extra_args=("--enable-auto-tool-choice", "--tool-call-parser", "hermes"),  # for tests of the chat endpoint
            weight_sync="broadcast",
            lora="adapter",
            lora_rank=4,
            run_dir=tmp_path_factory.mktemp("run"),
        )
    )
    loop.run(engine.start())
    yield loop, engine
    loop.run(engine.close())
    loop.close()


@pytest.fixture
def engine(served, run, base):
    """The engine with the weights of ``base`` as version 0."""
    run(served[1].update_weights(WeightSource("file", path=base), 0))
    return served[1]


@pytest.fixture(scope="session")
def address(served):
    """URL and token of the server, for engines that use one that runs already."""
    (member,) = served[1]._fleet.members
    return member.client.url, member.client._http.headers["Authorization"].removeprefix("Bearer ")


@pytest.fixture(scope="session")
def filtered():
    """Temperature, min-p, top-k and top-p as transformers applies them, in vLLM's order."""

    def left(logits, sampling):
        if sampling.temperature != 1:
            logits = TemperatureLogitsWarper(float(sampling.temperature))(None, logits)
        if sampling.min_p:
            logits = MinPLogitsWarper(sampling.min_p)(None, logits)
        if sampling.top_k:
            logits = TopKLogitsWarper(sampling.top_k)(None, logits)
        if sampling.top_p < 1:
            logits = TopPLogitsWarper(sampling.top_p)(None, logits)
        return logits

    return left
