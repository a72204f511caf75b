"""A small byte-level tokenizer trained on a recipe's own texts, with a chat template that knows tools.

The template writes tools and tool calls as the large Hermes-style models do, only shorter, so that everything
downstream treats a tiny model like any other chat model. Recipes call it through ``write_tiny_model``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

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

SPECIAL_TOKENS = ["<|pad|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>"]


def train_tokenizer(texts: Iterable[str], vocab_size: int = 512, *, phrases: bool = False) -> Any:
    """A ``PreTrainedTokenizerFast`` that can write any text, and the given ones in few tokens.

    Args:
        texts: What the model will read and write, such as ``as_texts(demonstrations)``.
        vocab_size: Tokens at most, 256 bytes and the special tokens included.
        phrases: Let a token span several words; otherwise words are units, and so can be copied one by one. Numbers
            are apart from words in both cases.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.decoder = decoders.ByteLevel()
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not phrases),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        show_progress=False,
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    bpe.train_from_iterator(texts, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe, eos_token="<|im_end|>", pad_token="<|pad|>", clean_up_tokenization_spaces=False
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def as_texts(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Demonstrations (``prompt``, ``completion``, ``tools``) as the chat template writes them, one text a row."""
    import jinja2

    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)  # as transformers writes it
    template = environment.from_string(CHAT_TEMPLATE)
    for row in rows:
        prompt = template.render(messages=row["prompt"], tools=row.get("tools"), add_generation_prompt=True)
        yield prompt + "".join(str(message["content"]) for message in row["completion"])
