"""The tiny model that recipes start from: any text comes back, and tool conversations go on token for token."""

from agentr1_core.mdp import token_array
from agentr1_core.render import create_chat_renderer
from agentr1_core.tool_format import HermesFormat
from agentr1_recipes.tiny import as_texts, train_tokenizer, write_tiny_model

SPEC = {"name": "look", "description": "Look.", "parameters": {"type": "object", "properties": {"at": {}}}}
ROWS = [
    {
        "prompt": [{"role": "user", "content": f"The {thing} costs 120 coins."}],
        "completion": [{"role": "assistant", "content": HermesFormat().write("look", {"at": thing})}],
        "tools": [{"type": "function", "function": SPEC}],
    }
    for thing in ("silver lamp", "copper kettle", "glass bowl") * 9
]


def test_any_text_comes_back_and_words_are_units():
    tokenizer = train_tokenizer(as_texts(ROWS))
    for text in ("The copper lamp", "größer 数 \U0001f600", "<tool_call>\n{}\n</tool_call>"):
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.tokenize("The silver kettle") == ["The", "Ġsilver", "Ġkettle"]
    assert not any("Ġ" in token[1:] for token in tokenizer.get_vocab())
    assert any("Ġ" in token[1:] for token in train_tokenizer(as_texts(ROWS), phrases=True).get_vocab())


def test_texts_are_what_the_renderer_shows():
    tokenizer = train_tokenizer(as_texts(ROWS))
    call = {"type": "function", "id": "c0", "function": {"name": "look", "arguments": {"at": "größer <b>"}}}
    history = [{"role": "assistant", "content": "", "tool_calls": [call]}, {"role": "tool", "content": "shiny"}]
    row = {**ROWS[0], "prompt": [*ROWS[0]["prompt"], *history]}
    shown = tokenizer.decode(create_chat_renderer(tokenizer).render(row["prompt"], (SPEC,)).tolist())
    (text,) = as_texts([row])
    assert text == shown + row["completion"][0]["content"]
    assert "tools: look(at)" in shown
    assert HermesFormat().write("look", {"at": "größer <b>"}) in shown


def test_a_tool_answer_continues_the_conversation_token_for_token():
    tokenizer = train_tokenizer(as_texts(ROWS))
    renderer = create_chat_renderer(tokenizer)
    prompt = renderer.render(ROWS[0]["prompt"], (SPEC,))
    said = [*tokenizer.encode(ROWS[0]["completion"][0]["content"]), tokenizer.eos_token_id]
    parsed = renderer.parse(token_array(said), prompt, (SPEC,))
    assert [(call.name, call.arguments) for call in parsed.tool_calls] == [("look", {"at": "silver lamp"})]
    answer = {"role": "tool", "tool_call_id": parsed.tool_calls[0].id, "name": "look", "content": "shiny"}
    history = [*ROWS[0]["prompt"], parsed.message]
    longer = renderer.extend(prompt, token_array(said), history, [answer], (SPEC,))
    assert longer is not None
    assert longer.tolist()[: len(prompt) + len(said)] == [*prompt.tolist(), *said]
    assert tokenizer.decode(longer.tolist()[len(prompt) + len(said) :]) == (
        "\n<|im_start|>tool\nshiny<|im_end|>\n<|im_start|>assistant\n"
    )


def test_the_model_loads_and_has_the_size_asked_for(tmp_path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = write_tiny_model(tmp_path / "model", as_texts(ROWS), 0, hidden=32, layers=1, max_context=64)
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert model.config.hidden_size == 32
    assert model.config.max_position_embeddings == 64
    assert model.config.vocab_size == len(tokenizer)
    assert tokenizer.tokenize("The silver kettle") == ["The", "Ġsilver", "Ġkettle"]
    assert model.config.eos_token_id == tokenizer.eos_token_id
