"""One real vLLM server for all tests here, in an environment of its own; tests talk to it over HTTP.

Run them with ``make test-vllm``, which makes that environment. The models are tiny and made here.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    MinPLogitsWarper,
    Qwen3Config,
    Qwen3ForCausalLM,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from agentr1_core.blocking import BlockingLoop
from agentr1_core.engine import WeightSource
from agentr1_engine_vllm import VLLMEngine
from agentr1_recipes.quickstart.tiny_model import train_tokenizer

ROOT = Path(__file__).parents[3]
PYTHON = Path(os.environ.get("AGENTR1_VLLM_PYTHON", ROOT / ".venvs" / "vllm" / "bin" / "python"))
BLOCK = 32
CONTEXT = 2048

torch.set_num_threads(1)


def write_model(folder: Path, seed: int) -> Path:
    """The quick start's architecture with heads of 32, which vLLM can do on CPU, and tied embeddings.

    Weights are large enough for two models to disagree about every token, and actions seldom end by themselves.
    """
    tokenizer = train_tokenizer()
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        head_dim=32,
        num_key_value_heads=4,
        max_position_embeddings=CONTEXT,
        initializer_range=0.2,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    torch.manual_seed(seed)
    model = Qwen3ForCausalLM(config)
    with torch.no_grad():
        model.model.embed_tokens.weight[tokenizer.eos_token_id] = 0.0
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def base(tmp_path_factory):
    """Folder of the model that the server starts with."""
    return write_model(tmp_path_factory.mktemp("base"), seed=0)


@pytest.fixture(scope="session")
def other(tmp_path_factory):
    """Folder of the same architecture with other weights."""
    return write_model(tmp_path_factory.mktemp("other"), seed=1)


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
def run(served):
    """Runs a coroutine on the engine's event loop; twenty minutes at most, since a busy machine restarts slowly."""
    loop, _ = served

    def to_the_end(work):
        import asyncio

        async def bounded():
            async with asyncio.timeout(1200):
                return await work

        return loop.run(bounded())

    return to_the_end


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
def reference():
    """``reference(folder, prompt, tokens, sampling)``: log-probs of tokens by one forward of transformers."""
    models = {}

    def logprobs(folder, prompt, tokens, sampling=None):
        if folder not in models:
            models[folder] = AutoModelForCausalLM.from_pretrained(folder, dtype="float32").eval()
        ids = torch.from_numpy(np.concatenate([prompt, tokens])).long().unsqueeze(0)
        with torch.no_grad():
            logits = models[folder](input_ids=ids, use_cache=False).logits[0, len(prompt) - 1 : -1].float()
        if sampling is not None:
            logits = filtered(logits, sampling)
        return torch.log_softmax(logits, -1).gather(1, ids[0, len(prompt) :, None])[:, 0].numpy()

    return logprobs


def filtered(logits, sampling):
    """Temperature, min-p, top-k and top-p as transformers applies them, in vLLM's order."""
    if sampling.temperature != 1:
        logits = TemperatureLogitsWarper(float(sampling.temperature))(None, logits)
    if sampling.min_p:
        logits = MinPLogitsWarper(sampling.min_p)(None, logits)
    if sampling.top_k:
        logits = TopKLogitsWarper(sampling.top_k)(None, logits)
    if sampling.top_p < 1:
        logits = TopPLogitsWarper(sampling.top_p)(None, logits)
    return logits


@pytest.fixture
def prompts():
    """``prompts(n, low, high, seed)``: random prompts without special tokens."""

    def some(n, low=8, high=60, seed=0):
        rng = np.random.default_rng(seed)
        return [rng.integers(10, 400, rng.integers(low, high)).astype(np.int32) for _ in range(n)]

    return some
