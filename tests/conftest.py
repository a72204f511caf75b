"""Shared by all tests: a small chat tokenizer, made here, so that nothing is downloaded."""

import asyncio

import pytest

CHAT_TEMPLATE = """\
{%- for message in messages -%}
<|im_start|>{{ message.role }}
{{ message.content or '' }}
{%- for call in message.tool_calls or [] -%}
{{ '\n' if message.content or not loop.first }}<tool_call>
{{ {'name': call.function.name, 'arguments': call.function.arguments} | tojson }}
</tool_call>
{%- endfor -%}
{%- if loop.first and tools -%}
{{ '\n' }}tools:
{%- for tool in tools %} {{ tool.function.name }}{% endfor %}
{%- endif -%}
<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
{% endif -%}
"""


def build_tokenizer(chat_template=CHAT_TEMPLATE):
    """A byte-level tokenizer (one token a byte) with the ChatML markers as special tokens."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    bpe = Tokenizer(models.BPE(vocab={symbol: i for i, symbol in enumerate(alphabet)}, merges=[]))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    bpe.decoder = decoders.ByteLevel()
    markers = ["<|pad|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>"]
    bpe.add_special_tokens([AddedToken(marker, normalized=False) for marker in markers])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe, eos_token="<|im_end|>", pad_token="<|pad|>", clean_up_tokenization_spaces=False
    )
    tokenizer.chat_template = chat_template
    return tokenizer


@pytest.fixture(scope="session")
def tokenizer():
    return build_tokenizer()


@pytest.fixture
def run():
    """Runs a coroutine to its end; a test that waits longer than a minute hangs and fails."""

    def to_the_end(coroutine):
        async def bounded():
            async with asyncio.timeout(60):
                return await coroutine

        return asyncio.run(bounded())

    return to_the_end
