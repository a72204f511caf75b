"""New weights take effect at once, and nothing old is left in any cache."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
import torch
from transformers import MixtralConfig, MixtralForCausalLM

from agentr1_core.engine import SamplingParams, WeightSource
from agentr1_core.errors import EngineError, PluginError
from agentr1_engine_transformers import TransformersEngine
from agentr1_engine_transformers.weights import update


def check_spans(reference, prompt, generation, models):
    """Each span's log-probs equal those of its version's model, and differ from the others'."""
    assert sum(span.n_tokens for span in generation.version_spans) == len(generation.token_ids)
    begin = 0
    for span in generation.version_spans:
        part = slice(begin, begin + span.n_tokens)
        for version, model in models.items():
            gap = np.abs(reference(model, prompt, generation)[part] - generation.logprobs[part]).max()
            assert (gap < 1e-4) == (version == span.version)
        begin += span.n_tokens


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("kind", ["state_dict", "file"])
def test_et_own_copy_takes_new_weights(tiny, reference, tmp_path, kind, tied):
    old, new = (tiny("llama", seed=seed, tie_word_embeddings=tied) for seed in (0, 1))
    old.save_pretrained(tmp_path / "old")
    new.save_pretrained(tmp_path / "new")
    prompt = np.arange(3, 30, dtype=np.int32)
    source = {
        "state_dict": WeightSource("state_dict", tensors=new.state_dict()),
        "file": WeightSource("file", path=tmp_path / "new"),
    }[kind]

    async def run():
        engine = TransformersEngine(TransformersEngine.Settings(model=str(tmp_path / "old"), device="cpu"))
        await engine.start()
        engine.require(weight_sync=kind)
        before = await engine.generate(prompt, SamplingParams(max_tokens=12, seed=0), session="s")
        await engine.update_weights(source, 4)
        after = await engine.generate(prompt, SamplingParams(max_tokens=12, seed=0), session="s")
        version = (await engine.health()).weight_version
        await engine.close()
        return before, after, version

    before, after, version = asyncio.run(run())
    assert version == 4
    assert after.cached_tokens == 0
    check_spans(reference, prompt, before, {0: old, 4: new})
    check_spans(reference, prompt, after, {0: old, 4: new})


def test_et_weights_that_do_not_fit_change_nothing(tiny, tmp_path):
    tiny("llama").save_pretrained(tmp_path)
    state = tiny("llama", seed=1).state_dict()
    name = "model.layers.0.mlp.up_proj.weight"
    bad = {
        "names": {**state, "extra.weight": torch.zeros(1)},
        "shapes": {**state, name: torch.zeros(3, 3)},
        "no values": {k: v for k, v in state.items() if k != name},
    }
    prompt, sampling = np.arange(3, 9, dtype=np.int32), SamplingParams(max_tokens=9, seed=0)

    async def run():
        engine = TransformersEngine(TransformersEngine.Settings(model=str(tmp_path), device="cpu"))
        await engine.start()
        before = await engine.generate(prompt, sampling)
        for words, tensors in bad.items():
            with pytest.raises(EngineError, match=words):
                await engine.update_weights(WeightSource("state_dict", tensors=tensors), 1)
        with pytest.raises(EngineError, match="No safetensors"):
            await engine.update_weights(WeightSource("file", path=tmp_path / "missing"), 1)
        with pytest.raises(EngineError, match="could not do that"):
            await engine.update_weights(WeightSource("state_dict", tensors={name: "not a tensor"}), 1)
        with pytest.raises(EngineError, match="'live'"):
            await engine.update_weights(WeightSource("live"), 1)
        with pytest.raises(PluginError, match="live"):
            engine.require(weight_sync="live")
        after = await engine.generate(prompt, sampling)
        await engine.close()
        return before, after

    before, after = asyncio.run(run())
    assert before.logprobs.tolist() == after.logprobs.tolist()
    assert after.version_spans[0].version == 0


def test_et_update_in_the_middle_is_recorded_and_leaves_no_stale_cache(
    tiny, prompts, reference, until_running, tmp_path
):
    old, new = (tiny("qwen2", seed=seed, max_positions=2000, eos_token_id=None) for seed in (0, 1))
    old.save_pretrained(tmp_path)
    contexts = prompts(5)

    async def run():
        engine = TransformersEngine(TransformersEngine.Settings(model=str(tmp_path), device="cpu"))
        await engine.start()
        samplings = [SamplingParams(max_tokens=600, seed=i) for i in range(5)]
        calls = [
            asyncio.ensure_future(engine.generate(p, s, session=str(s.seed)))
            for p, s in zip(contexts, samplings, strict=True)
        ]
        await until_running(engine, 5)
        await engine.update_weights(WeightSource("state_dict", tensors=new.state_dict()), 1)
        generations = await asyncio.gather(*calls)
        await engine.close()
        return generations

    generations = asyncio.run(run())
    for prompt, generation in zip(contexts, generations, strict=True):
        assert [span.version for span in generation.version_spans] == [0, 1]
        check_spans(reference, prompt, generation, {0: old, 1: new})


def test_et_files_laid_out_otherwise_than_memory_are_converted(tmp_path):
    """A mixture of experts is saved expert by expert and held in one tensor."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_local_experts": 4}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}
    model = MixtralForCausalLM(MixtralConfig(vocab_size=64, **sizes, **heads))
    model.save_pretrained(tmp_path / "moe")
    wanted = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    update(model, WeightSource("file", path=tmp_path / "moe"))
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, wanted[name]), name

    other = MixtralForCausalLM(MixtralConfig(vocab_size=64, **{**sizes, "num_hidden_layers": 1}, **heads))
    other.save_pretrained(tmp_path / "shallow")
    with pytest.raises(EngineError, match=r"missing keys|no values"):
        update(model, WeightSource("file", path=tmp_path / "shallow"))


def test_et_a_model_with_an_adapter_can_be_shared(model, serve, reference):
    peft = pytest.importorskip("peft")
    adapted = peft.get_peft_model(model, peft.LoraConfig(target_modules=["q_proj", "v_proj"], init_lora_weights=False))
    prompt = np.arange(3, 30, dtype=np.int32)

    async def run():
        async with serve(adapted) as engine:
            health = await engine.health()
            return health, await engine.generate(prompt, SamplingParams(max_tokens=10, seed=3))

    health, generation = asyncio.run(run())
    assert "key-value cache" in health.detail
    np.testing.assert_allclose(generation.logprobs, reference(adapted, prompt, generation), atol=1e-4)


def test_et_a_shared_model_is_seen_as_trained_and_left_in_training_mode(model, serve, reference):
    """Dropout and gradient checkpointing stay off while sampling, and come back afterwards."""
    model.train()
    renamed = hasattr(model, "activation_checkpointing_enable")  # in the course of transformers 5
    (model.activation_checkpointing_enable if renamed else model.gradient_checkpointing_enable)()
    model.model.norm.eval()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    prompt = np.arange(3, 30, dtype=np.int32)
    ids = torch.from_numpy(prompt).long().unsqueeze(0)

    def loss_step():
        optimizer.zero_grad()
        model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
        optimizer.step()

    async def run():
        async with serve(model) as engine:
            engine.require(weight_sync="live")
            out = []
            for version in range(1, 4):
                generation = await engine.generate(prompt, SamplingParams(max_tokens=10, seed=0), session="s")
                out.append((generation, reference(model, prompt, generation)))
                assert model.training
                assert not model.model.norm.training
                loss_step()
                await engine.update_weights(WeightSource("live"), version)
            return out

    results = asyncio.run(run())
    for version, (generation, expected) in enumerate(results):
        assert {span.version for span in generation.version_spans} == {version}
        assert generation.cached_tokens == 0
        np.testing.assert_allclose(generation.logprobs, expected, atol=1e-4)
    assert np.abs(results[0][0].logprobs[0] - results[2][0].logprobs[0]) > 1e-3
