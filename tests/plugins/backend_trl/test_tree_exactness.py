"""Token trees in double precision, with every kind of attention, and the models they would be wrong for."""

import dataclasses

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    LlamaConfig,
    MambaConfig,
    MistralConfig,
    MixtralConfig,
    Qwen2Config,
    Qwen3Config,
)

from agentr1_backend_trl.exact_gradient import DoublePrecision, double_copy, layout_gradient
from agentr1_backend_trl.replay import apart, noise_credit
from agentr1_backend_trl.tree_chunk import TreeChunk, TreeSettings
from agentr1_backend_trl.tree_cost import cheaper_path, cost_of, estimate
from agentr1_backend_trl.tree_forward import hidden_by_mask
from agentr1_backend_trl.tree_models import can_use_cache, check_tree_model
from agentr1_core.errors import ConfigError, DataError
from agentr1_core.mdp import Action, Group, Observation, Step, StopReason, Trajectory, float_array, token_array
from agentr1_core.rows import build_tree

SMALL = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}
KINDS = {
    "qwen2": lambda: Qwen2Config(**SMALL, tie_word_embeddings=True),
    "qwen3": lambda: Qwen3Config(**SMALL, head_dim=8),
    "llama": lambda: LlamaConfig(**SMALL),
    "gpt2": lambda: GPT2Config(
        vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=256, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0
    ),
    "mixtral": lambda: MixtralConfig(**SMALL, num_local_experts=4, sliding_window=None),
}


def build(config, attention="sdpa"):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=attention)
    with torch.no_grad():  # sharper than a fresh model, so that a token at a wrong place shows
        for p in model.parameters():
            p.mul_(3.0)
    return model.train()


def trajectory(name, *steps):
    return Trajectory(
        name,
        "g",
        {},
        tuple(
            Step(
                i,
                Observation(messages=(), prompt_ids=token_array(p)),
                Action(token_array(a), float_array(np.zeros(len(a)))),
                reward=0.0,
            )
            for i, (p, a) in enumerate(steps)
        ),
        StopReason.TERMINATED,
    )


@pytest.fixture(scope="module")
def groups():
    """A continued, a branching and a rewriting episode on one prompt; two sampled the same first token."""
    prompt = [5, 6, 7, 8, 9]
    return [
        Group(
            "g",
            {},
            (
                trajectory("a", (prompt, [10, 11]), ([*prompt, 10, 11, 30, 31], [12, 13, 14])),
                trajectory("b", (prompt, [10, 21, 22]), ([*prompt, 10, 21, 22, 30], [23])),
                trajectory("c", (prompt, [40, 41, 42]), ([*prompt, 42, 50], [43, 44]), ([5, 6, 60], [45])),
            ),
        )
    ]


@pytest.mark.parametrize("layout", ["linear", "mask", "kv"])
@pytest.mark.parametrize("kind", KINDS)
def test_layouts_agree_in_double_precision(groups, kind, layout):
    model = double_copy(build(KINDS[kind]()))
    credit = noise_credit(groups)
    separate = layout_gradient(model, groups, credit, "none")
    assert apart(layout_gradient(model, groups, credit, layout), separate) < 1e-12


@pytest.mark.parametrize("layout", ["mask", "kv"])
def test_an_adapter_in_double_precision(groups, layout):
    lora = LoraConfig(task_type="CAUSAL_LM", r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    model = double_copy(get_peft_model(build(KINDS["qwen2"]()), lora))
    credit = noise_credit(groups)
    separate = layout_gradient(model, groups, credit, "none")
    assert apart(layout_gradient(model, groups, credit, layout), separate) < 1e-12


def test_eager_attention_gets_a_mask_it_can_add(groups):
    model = double_copy(build(KINDS["qwen2"](), attention="eager"))
    credit = noise_credit(groups)
    separate = layout_gradient(model, groups, credit, "none")
    assert apart(layout_gradient(model, groups, credit, "mask"), separate) < 1e-12


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_attention_sees_the_same_tokens():
    """The forward alone: there is no backward on the CPU. The block mask is the one that CUDA gets."""
    model = build(KINDS["qwen3"]())
    tree = build_tree([np.asarray([1, 2, 3, 4, 9, 9]), np.asarray([1, 2, 5, 6]), np.asarray([1, 2, 5, 7, 8])])
    ids = torch.as_tensor(tree.token_ids).long()[None]
    with torch.no_grad(), torch.compiler.set_stance("force_eager"):
        wanted = hidden_by_mask(model.model, model.model, tree, ids).last_hidden_state
        model.config._attn_implementation = "flex_attention"
        found = hidden_by_mask(model.model, model.model, tree, ids).last_hidden_state
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


def test_eager_attention_with_a_boolean_mask_would_be_wrong(groups):
    """Why ``tree_mask`` never gives it one."""
    model = build(KINDS["qwen2"](), attention="eager")
    tree = build_tree([np.asarray([1, 2, 3, 4]), np.asarray([1, 2, 5, 6])])
    ids = torch.as_tensor(tree.token_ids).long()[None]
    right = hidden_by_mask(model.model, model.model, tree, ids).last_hidden_state
    wrong = model.model(
        input_ids=ids,
        attention_mask=torch.as_tensor(tree.attends())[None, None],
        position_ids=torch.as_tensor(tree.depths).long()[None],
        use_cache=False,
    ).last_hidden_state
    assert float((right - wrong).detach().norm() / right.detach().norm()) > 0.01


@pytest.mark.parametrize(("layout", "fault"), [("mask", "positions"), ("kv", "positions"), ("mask", "shift")])
def test_a_damaged_tree_shows(groups, layout, fault):
    def damage(chunk):
        line = np.arange(len(chunk.tree), dtype=np.int32)
        changed = {"positions": {"depths": line}, "shift": {"parents": line - 1}}[fault]
        return dataclasses.replace(chunk, tree=dataclasses.replace(chunk.tree, **changed))

    model = double_copy(build(KINDS["qwen2"]()))
    credit = noise_credit(groups)
    separate = layout_gradient(model, groups, credit, "none")
    assert apart(layout_gradient(model, groups, credit, layout, damage), separate) > 1e-3


def test_double_precision_is_kept_inside_norms():
    with DoublePrecision():
        assert torch.ones(2, dtype=torch.float64).to(torch.float32).dtype == torch.float64
        assert torch.ones(2, dtype=torch.float64).float().dtype == torch.float64
    assert torch.ones(2, dtype=torch.float64).float().dtype == torch.float32


def sliding():
    return Qwen2Config(**SMALL, use_sliding_window=True, sliding_window=16, max_window_layers=1)


REFUSED = {
    "sliding window": (sliding, "sliding window"),
    "Mistral's window": (lambda: MistralConfig(**SMALL, sliding_window=16), "sliding window"),
    "state space": (lambda: MambaConfig(vocab_size=64, hidden_size=32, num_hidden_layers=2, state_size=4), "in a line"),
    "dynamic rotary": (
        lambda: LlamaConfig(**SMALL, rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}),
        "longest row",
    ),
    "attention dropout": (lambda: Qwen2Config(**SMALL, attention_dropout=0.1), "attention_dropout=0.1"),
    "dropout modules": (lambda: GPT2Config(vocab_size=64, n_embd=32, n_layer=1, n_head=4), "dropout 0.1"),
    "router noise": (
        lambda: MixtralConfig(**SMALL, num_local_experts=4, sliding_window=None, router_jitter_noise=0.1),
        "jitter_noise=0.1",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_models_that_a_tree_would_be_wrong_for(name):
    config, reason = REFUSED[name]
    with pytest.raises(ConfigError, match=reason) as found:
        check_tree_model(build(config(), "eager" if name == "state space" else "sdpa"))
    assert found.value.mend


@pytest.mark.parametrize("kind", KINDS)
def test_models_that_a_tree_is_exact_for(kind):
    check_tree_model(build(KINDS[kind]()))


def test_more_reasons_to_refuse():
    model = build(KINDS["mixtral"]())
    with pytest.raises(ConfigError, match="load-balancing"):
        check_tree_model(model, aux_loss=True)
    model.config.expert_capacity = 2
    with pytest.raises(ConfigError, match="expert_capacity"):
        check_tree_model(model)
    dropped = LoraConfig(task_type="CAUSAL_LM", r=2, target_modules=["q_proj"], lora_dropout=0.1)
    with pytest.raises(ConfigError, match=r"dropout 0.1 in '.*lora_dropout"):
        check_tree_model(get_peft_model(build(KINDS["qwen2"]()), dropped))
    model = build(KINDS["qwen2"]())
    model.config._attn_implementation = "flash_attention_2"
    with pytest.raises(ConfigError, match="takes no mask of its own"):
        check_tree_model(model)
    model.config._attn_implementation = "flex_attention"
    with pytest.raises(ConfigError, match="no backward on the CPU"):
        check_tree_model(model)


def test_the_cheaper_path_is_estimated():
    cost = cost_of(512, "cpu")
    long_branches = build_tree([np.r_[np.arange(256), np.full(2000, 300 + n)] for n in range(4)])
    assert cheaper_path(long_branches, cost) == "kv"  # most pairs of a dense mask are hidden
    short_branches = build_tree([np.r_[np.arange(30), 100 + n, 7] for n in range(30)])
    assert cheaper_path(short_branches, cost) == "mask"  # thirty small forwards
    assert estimate(build_tree([np.arange(600)]), cost_of(100, "cpu")) == pytest.approx((1200 + 16, 900.5 + 16))
    few = build_tree([np.r_[np.arange(256), np.full(100, 300 + n)] for n in range(4)])
    assert [cheaper_path(few, cost_of(512, device)) for device in ("cpu", "cuda")] == ["kv", "mask"]
    assert cheaper_path(long_branches, cost_of(512, "cpu", may_cache=False)) == "mask"


def test_a_cache_is_not_used_where_layers_are_recomputed():
    model = build(KINDS["qwen2"]())
    assert can_use_cache(model)
    model.gradient_checkpointing_enable()
    assert not can_use_cache(model)
    with torch.no_grad():
        assert can_use_cache(model)


def test_settings_and_rows_that_make_no_tree(make_trainer):
    with pytest.raises(ConfigError, match="tree_path is 'flat'"):
        TreeSettings(path="flat")
    with pytest.raises(ConfigError, match="tree_tokens is 1"):
        TreeSettings(max_tokens=1)
    with pytest.raises(ConfigError, match="gradient_checkpointing"):
        make_trainer({"gradient_checkpointing": True}, merge="tree", tree=TreeSettings(path="kv"))
    row = type("Row", (), {"prompt_ids": token_array([]), "completion_ids": token_array([1, 2])})()
    with pytest.raises(DataError, match="empty prompt"):
        TreeChunk.of([row], 0, 2)
