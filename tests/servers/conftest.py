"""What the tests of real inference servers share: tiny models, and what transformers says about the same tokens.

A folder for each server has a ``served`` fixture: the event loop, and the engine that started the server.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from agentr1_recipes.quickstart.tiny_model import train_tokenizer

CONTEXT = 2048

torch.set_num_threads(1)


def write_model(folder, seed):
    """The quick start's architecture with heads of 32, which every server can do on CPU, and tied embeddings.

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


@pytest.fixture
def waits_s():
    """Seconds to wait, try by try, before something is done to an action that is on its way.

    On a busy machine it may not have begun after a short wait, and be over after a long one.
    """
    return (0.3, 0.1, 0.6, 0.03, 1.0, 0.01, 2.0, 0.2) * 2


@pytest.fixture(scope="session")
def base(tmp_path_factory):
    """Folder of the model that the server starts with."""
    return write_model(tmp_path_factory.mktemp("base"), seed=0)


@pytest.fixture(scope="session")
def other(tmp_path_factory):
    """Folder of the same architecture with other weights."""
    return write_model(tmp_path_factory.mktemp("other"), seed=1)


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


@pytest.fixture(scope="session")
def reference(filtered):
    """``reference(folder, prompt, tokens, sampling)``: log-probs of tokens by one forward of transformers.

    ``filtered(logits, sampling)``, of each server's own folder, leaves what that server samples from.
    """
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


@pytest.fixture
def prompts():
    """``prompts(n, low, high, seed)``: random prompts without special tokens."""

    def some(n, low=8, high=60, seed=0):
        rng = np.random.default_rng(seed)
        return [rng.integers(10, 400, rng.integers(low, high)).astype(np.int32) for _ in range(n)]

    return some
