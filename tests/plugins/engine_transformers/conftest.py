"""Tiny models with random weights, and what a plain forward says about a generation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import asynccontextmanager

import numpy as np
import pytest
import torch
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    MinPLogitsWarper,
    Qwen2Config,
    Qwen2ForCausalLM,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from agentr1_engine_transformers import TransformersEngine

VOCAB = 64
EOS = 2


def build(kind: str, seed: int = 0, vocab_size: int = VOCAB, max_positions: int = 256, **more) -> torch.nn.Module:
    """A model whose logits are spread enough for mistakes to show."""
    torch.manual_seed(seed)
    small = {"vocab_size": vocab_size, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": max_positions}
    common = {"eos_token_id": EOS, "pad_token_id": None, "bos_token_id": None, "initializer_range": 0.3, **more}
    if kind == "qwen2":
        model = Qwen2ForCausalLM(Qwen2Config(**small, **heads, **common))
    elif kind == "llama":
        model = LlamaForCausalLM(LlamaConfig(**small, **heads, **common))
    elif kind == "gemma3":  # sliding windows of 8 tokens in every other layer
        kinds = ["sliding_attention", "full_attention"]
        config = Gemma3TextConfig(**small, **heads, head_dim=8, sliding_window=8, layer_types=kinds, **common)
        model = Gemma3ForCausalLM(config)
    elif kind == "gpt2":
        sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": max_positions}
        model = GPT2LMHeadModel(GPT2Config(vocab_size=vocab_size, **sizes, **common))
    elif kind == "mamba":
        config = MambaConfig(vocab_size=vocab_size, hidden_size=32, num_hidden_layers=2, state_size=4, **common)
        model = MambaForCausalLM(config)
    else:
        raise ValueError(kind)
    return model.eval()


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    """Models this small only lose by sharing their work among threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def model():
    return build("qwen2")


@pytest.fixture
def serve() -> Callable:
    """``async with serve(model, **settings) as engine``: a started engine that is closed on every path."""

    @asynccontextmanager
    async def serving(model, eos_token_ids=(), **settings):
        chosen = TransformersEngine.Settings(**settings)
        engine = TransformersEngine.sharing(model, settings=chosen, eos_token_ids=eos_token_ids)
        await engine.start()
        try:
            yield engine
        finally:
            await engine.close()

    return serving


@pytest.fixture
def reference() -> Callable:
    """Log-probs of a generation by one teacher-forced forward over prompt and action."""

    def logprobs(model, prompt, generation, sampling=None) -> np.ndarray:
        ids = torch.from_numpy(np.concatenate([prompt, generation.token_ids])).long().unsqueeze(0)
        with torch.no_grad():
            logits = model(input_ids=ids, use_cache=False).logits[0, len(prompt) - 1 : -1].float()
        if sampling is not None:
            logits = filtered(logits, sampling)
        picked = torch.log_softmax(logits, -1).gather(1, ids[0, len(prompt) :, None])
        return picked[:, 0].numpy()

    return logprobs


def filtered(logits: torch.Tensor, sampling) -> torch.Tensor:
    """Temperature, top-k, top-p and min-p as transformers itself applies them."""
    if sampling.temperature != 1:
        logits = TemperatureLogitsWarper(float(sampling.temperature))(None, logits)
    if sampling.top_k:
        logits = TopKLogitsWarper(sampling.top_k)(None, logits)
    if sampling.top_p < 1:
        logits = TopPLogitsWarper(sampling.top_p)(None, logits)
    if sampling.min_p:
        logits = MinPLogitsWarper(sampling.min_p)(None, logits)
    return logits


@pytest.fixture
def prompts() -> Callable:
    """Random prompts of different lengths, without the end-of-sequence id."""

    def some(n: int, low: int = 3, high: int = 40, seed: int = 0) -> list[np.ndarray]:
        rng = np.random.default_rng(seed)
        return [rng.integers(3, VOCAB, rng.integers(low, high)).astype(np.int32) for _ in range(n)]

    return some


@pytest.fixture
def tiny() -> Callable:
    """``tiny("llama")`` builds a tiny model; see ``build``."""
    return build


@pytest.fixture
def filtered_logits() -> Callable:
    """Logits after temperature, top-k, top-p and min-p; see ``filtered``."""
    return filtered


@pytest.fixture
def until_running() -> Callable:
    """``await until_running(engine, n)``: wait until ``n`` calls have sampled something; ten seconds at most."""

    async def wait(engine, n_running: int) -> None:
        for _ in range(1000):
            if (await engine.health()).running >= n_running:
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"fewer than {n_running} calls run after ten seconds")

    return wait


@pytest.fixture(scope="session")
def tiny_of_session() -> Callable:
    """``tiny`` for fixtures of a wider scope."""
    return build
