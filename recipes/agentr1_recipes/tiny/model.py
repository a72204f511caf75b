"""A chat model of a few hundred thousand parameters, untrained, with its tokenizer.

Recipes call it from ``base_model``; a warm start on their demonstrations teaches it the language of the task.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from agentr1_recipes.tiny.tokenizer import train_tokenizer


def write_tiny_model(
    folder: Path,
    texts: Iterable[str],
    seed: int,
    *,
    hidden: int = 96,
    layers: int = 2,
    heads: int = 4,
    vocab_size: int = 512,
    max_context: int = 512,
    initial_std: float = 0.02,
    phrases: bool = False,
) -> Path:
    """Write model and tokenizer in the Hugging Face layout and return the folder.

    Args:
        folder: Created if missing.
        texts: What the tokenizer is trained on; see ``train_tokenizer``.
        seed: Of the weights; the same texts always give the same tokenizer.
        hidden: Width; a multiple of ``heads``.
        layers: Depth.
        heads: Attention heads; vLLM on CPU wants ``hidden / heads`` to be 32, 64 or another of the sizes it knows.
        vocab_size: Tokens of the tokenizer at most.
        max_context: Longest prompt and answer together, in tokens.
        initial_std: Standard deviation of the first weights; so narrow a model learns to copy from its prompt much
            sooner with 0.1 than with the 0.02 of large ones.
        phrases: Let a token span several words; see ``train_tokenizer``.
    """
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    tokenizer = train_tokenizer(texts, vocab_size, phrases=phrases)
    # Not Qwen2: transformers reloads its tokenizers with the pre-tokenizer of the large Qwen2 models.
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        head_dim=hidden // heads,
        num_key_value_heads=heads,
        max_position_embeddings=max_context,
        initializer_range=initial_std,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    torch.manual_seed(seed)
    Qwen3ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
