"""Engines with weights of their own, and TRL's vLLM behind the engine contract."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from peft import LoraConfig, PeftModel
from transformers import AutoModelForCausalLM

from agentr1_backend_trl.vllm_engine import TRLVLLMEngine
from agentr1_core.engine import SamplingParams, WeightSource
from agentr1_core.errors import ConfigError, EngineError, PluginError
from agentr1_core.mdp import FinishReason, token_array
from agentr1_engine_transformers.engine import TransformersEngine
from agentr1_engine_transformers.settings import EngineSettings


@pytest.mark.parametrize("route", ["state_dict", "file"])
@pytest.mark.parametrize("adapter", [False, True])
def test_an_engine_of_its_own_follows_the_trainer(make_trainer, tiny, tmp_path, route, adapter):
    tiny.model(seed=7).save_pretrained(tmp_path / "other")
    tiny.tokenizer().save_pretrained(tmp_path / "other")
    engine = TransformersEngine(EngineSettings(model=str(tmp_path / "other"), device="cpu", dtype="float32"))
    lora = LoraConfig(r=4, target_modules=["q_proj", "down_proj"], init_lora_weights=False) if adapter else None
    config = {"max_steps": 3, "learning_rate": 1e-2}
    trainer = make_trainer(config, engine=engine, engine_weights=route, peft_config=lora, importance_cap=2.0)
    trainer.train()
    assert trainer.last_update["logprob_gap_max"] < 1e-4  # it began elsewhere, and the trainer moved
    assert trainer.last_update["sampling/importance_sampling_ratio/mean"] == pytest.approx(1.0, abs=1e-3)


class TakesAdapters(TransformersEngine):
    """Keeps the whole weights it was given, and samples from a copy with the newest adapter merged into it."""

    @property
    def capabilities(self):
        have = super().capabilities
        return replace(have, weight_sync=have.weight_sync | {"lora"})

    async def update_weights(self, weights, version):
        self.given.append((weights.kind, version))
        if weights.kind != "lora":
            self.whole = {name: tensor.clone() for name, tensor in weights.tensors.items()}
            return await super().update_weights(weights, version)
        assert {file.suffix for file in weights.path.iterdir()} <= {".safetensors", ".json", ".md"}
        model = AutoModelForCausalLM.from_pretrained(self.settings_model)
        model.load_state_dict(self.whole, strict=False)
        merged = PeftModel.from_pretrained(model, weights.path).merge_and_unload()
        return await super().update_weights(WeightSource("state_dict", tensors=merged.state_dict()), version)


def engine_for_adapters(tiny, folder):
    tiny.model(seed=7).save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)
    engine = TakesAdapters(EngineSettings(model=str(folder), device="cpu", dtype="float32"))
    engine.settings_model, engine.given = str(folder), []
    return engine


def test_an_adapter_goes_by_itself_to_an_engine_that_takes_adapters(make_trainer, tiny, tmp_path):
    engine = engine_for_adapters(tiny, tmp_path / "other")
    lora = LoraConfig(r=4, target_modules=["q_proj", "down_proj"], init_lora_weights=False)
    trainer = make_trainer({"max_steps": 3, "learning_rate": 1e-2}, engine=engine, peft_config=lora)
    trainer.train()
    assert engine.given == [("state_dict", 0), ("lora", 0), ("lora", 1), ("lora", 2)]
    assert trainer.last_update["logprob_gap_max"] < 1e-4


@pytest.mark.parametrize(
    ("config", "what"),
    [
        (None, "no adapter"),
        (LoraConfig(r=4, target_modules=["q_proj"], use_dora=True), "use_dora"),
        (LoraConfig(r=4, target_modules=["q_proj"], modules_to_save=["lm_head"]), "modules_to_save"),
    ],
)
def test_what_is_no_plain_adapter_is_refused_where_adapters_are_waited_for(make_trainer, tiny, tmp_path, config, what):
    with pytest.raises(ConfigError, match=rf"(?s){what}.*lora: merge"):
        make_trainer(engine=engine_for_adapters(tiny, tmp_path / "other"), peft_config=config)


def test_a_stale_engine_is_corrected_for(make_trainer, tiny, tmp_path):
    """An engine that never takes the weights: ratios are away from 1, and bounded."""

    class Deaf(TransformersEngine):
        async def update_weights(self, weights, version):
            pass

    tiny.model(seed=7).save_pretrained(tmp_path / "other")
    tiny.tokenizer().save_pretrained(tmp_path / "other")
    engine = Deaf(EngineSettings(model=str(tmp_path / "other"), device="cpu", dtype="float32"))
    trainer = make_trainer({"max_steps": 1}, engine=engine, importance_cap=1.01)
    trainer.train()
    assert trainer.last_update["logprob_gap"] > 1e-2
    assert trainer.last_update["sampling/importance_sampling_ratio/mean"] < 1.01


def test_a_route_the_engine_lacks_is_refused(make_trainer, tiny, tmp_path):
    engine = TransformersEngine(EngineSettings(model=str(tmp_path)))
    with pytest.raises(PluginError, match="weight_sync='nccl'"):
        make_trainer(engine=engine, engine_weights="nccl")


def vllm_trainer(answers):
    """A trainer whose vLLM gives these answers; a real one needs a GPU."""
    calls = []

    def generate(prompts, images, fields, num_generations):
        calls.append((len(prompts), trainer.vllm_generation.max_completion_length))
        if isinstance(answers, Exception):
            raise answers
        return [list(answers) for _ in prompts], [[-0.5] * (len(answers) - 1) + [None] for _ in prompts]

    trainer = SimpleNamespace(
        args=SimpleNamespace(vllm_max_model_length=64),
        eos_token_ids=[2],
        state=SimpleNamespace(global_step=3),
        vllm_generation=SimpleNamespace(max_completion_length=16),
        _generate_single_turn=generate,
        calls=calls,
    )
    return trainer


def ask(trainer, *limits):
    async def main():
        engine = TRLVLLMEngine(trainer)
        await engine.start()
        asked = [engine.generate(token_array([5, 6]), SamplingParams(max_tokens=limit)) for limit in limits]
        try:
            return await asyncio.gather(*asked)
        finally:
            await engine.close()

    return asyncio.run(main())


def test_waiting_requests_share_a_call_of_vllm():
    trainer = vllm_trainer([9, 8, 2, 7])
    found = ask(trainer, 8, 8, 4)
    assert sorted(trainer.calls) == [(1, 4), (2, 8)]
    assert trainer.vllm_generation.max_completion_length == 16
    assert found[0].token_ids.tolist() == [9, 8, 2]  # cut behind the stop token
    assert found[0].finish_reason is FinishReason.STOP
    assert found[0].version_spans[0].version == 3


def test_a_token_vllm_could_not_score_is_nan():
    (found,) = ask(vllm_trainer([9, 8]), 2)
    assert found.finish_reason is FinishReason.LENGTH
    assert np.isnan(found.logprobs).tolist() == [False, True]


def test_a_fault_of_vllm_is_an_engine_error():
    with pytest.raises(EngineError, match="out of memory"):
        ask(vllm_trainer(torch.OutOfMemoryError("out of memory")), 2)
