"""A chat model of about 0.2 million parameters and its tokenizer, made from nothing.

The tokenizer is a byte-level BPE trained on the recipe's own demonstrations; the chat template knows tools and tool
calls as the large Hermes-style models do, so everything downstream treats it like any other chat model.
"""

from __future__ import annotations

import random
from pathlib import Path

from agentr1_recipes.quickstart.demonstrations import demonstrate

CHAT_TEMPLATE = """\
{%- for message in messages -%}
<|im_start|>{{ message.role }}
{{ message.content or '' }}
{%- for call in message.tool_calls or [] -%}
{{ '\n' if message.content or not loop.first }}<tool_call>
{{ {'name': call.function.name, 'arguments': call.function.arguments} | tojson }}
</tool_call>
{%- endfor %}
{%- if loop.first and tools -%}
{{ '\n' }}tools:
{%- for tool in tools %} {{ tool.function.name }}({{ tool.function.parameters.properties | join(',') }}){% endfor %}
{%- endif -%}
<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
{% endif -%}
"""

#: Size of an attention head: the smallest that vLLM can do on CPU.
HEAD = 32
SPECIAL_TOKENS = ["<|pad|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>"]


def write_tiny_model(folder: Path, seed: int, hidden: int = 96, layers: int = 2) -> Path:
    """Write model and tokenizer in the Hugging Face layout and return the folder.

    Args:
        folder: Created if missing.
        seed: Of the weights; the tokenizer is always the same.
        hidden: Width; a multiple of ``HEAD``.
        layers: Depth.
    """
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    tokenizer = train_tokenizer()
    # Not Qwen2: transformers reloads its tokenizers with the pre-tokenizer of the large Qwen2 models.
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=hidden // HEAD,
        head_dim=HEAD,
        num_key_value_heads=hidden // HEAD,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    torch.manual_seed(seed)
    Qwen3ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def train_tokenizer(vocab_size: int = 512):  # type: ignore[no-untyped-def]  # transformers ships no types for it
    """The recipe's tokenizer: byte-level BPE in which each number, digit for digit, is a unit."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.decoder = decoders.ByteLevel()
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        show_progress=False,
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    rng = random.Random(1)
    rows = [demonstrate(rng) for _ in range(600)]
    texts = [_as_text(row["prompt"]) + row["completion"][0]["content"] for row in rows]
    bpe.train_from_iterator(texts, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe, eos_token="<|im_end|>", pad_token="<|pad|>", clean_up_tokenization_spaces=False
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def _as_text(messages: list[dict[str, str]]) -> str:
    """The text of a prompt as the chat template writes it."""
    system, user = messages
    opening = f"<|im_start|>system\n{system['content']}\ntools: add(a,b) answer(value)<|im_end|>\n"
    return f"{opening}<|im_start|>user\n{user['content']}<|im_end|>\n<|im_start|>assistant\n"
