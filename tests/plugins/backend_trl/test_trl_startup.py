"""Settings that could not be kept are refused with their name and a mend, before anything is loaded or played."""

from types import SimpleNamespace

import pytest

from agentr1_backend_trl.startup import check_engine
from agentr1_core.engine import EngineCapabilities
from agentr1_core.errors import ConfigError, DataError, EnvError
from agentr1_core.flow import SingleStepFlow


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"temperature": 0.0}, "temperature"),
        ({"repetition_penalty": 1.1}, "repetition_penalty"),
        ({"generation_kwargs": {"num_beams": 2}}, "generation_kwargs"),
        ({"mask_truncated_completions": True}, "mask_truncated_completions"),
        ({"top_entropy_quantile": 0.5}, "top_entropy_quantile"),
        ({"use_adaptive_entropy": True}, "use_adaptive_entropy"),
        ({"scale_rewards": "batch"}, "scale_rewards"),
        ({"importance_sampling_level": "sequence"}, "importance_sampling_level"),
        ({"loss_type": "vespo"}, "vespo"),
        ({"loss_type": "nonsense"}, "nonsense"),
        ({"use_transformers_continuous_batching": True}, "continuous_batching"),
        ({"max_tool_calling_iterations": 3}, "max_steps"),
        ({"steps_per_generation": 3, "gradient_accumulation_steps": 2}, "do not divide"),
    ],
)
def test_settings_that_cannot_be_kept(make_trainer, config, named):
    with pytest.raises(ConfigError, match=named):
        make_trainer(config)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"env": None}, "Nothing to play"),
        ({"flow": SingleStepFlow, "env": lambda task: None}, "Both `env` and `flow`"),
        ({"estimator": "nonsense"}, "Unknown estimator"),
        ({"merge": "forest"}, "merge is 'forest'"),
        ({"rollout_func": print}, "rollout_func"),
        ({"processing_class": object()}, "tokenizer"),
    ],
)
def test_arguments_that_make_no_sense(make_trainer, tiny, arguments, said):
    from agentr1_backend_trl.trainer import StepGRPOTrainer

    given = {"env": tiny.env, "processing_class": tiny.tokenizer(), **arguments}
    with pytest.raises(ConfigError, match=said):
        StepGRPOTrainer(tiny.model(), args=tiny.config("unused"), train_dataset=tiny.dataset(), **given)


def test_an_environment_instance_is_not_enough(make_trainer, tiny):
    with pytest.raises(ConfigError, match="every episode needs one of its own"):
        make_trainer(env=tiny.env())


@pytest.mark.parametrize(
    "config", [{"loss_type": "vespo"}, {"loss_type": "grpo", "importance_sampling_level": "sequence"}]
)
def test_losses_over_whole_rows_train_with_one_step_a_row(make_trainer, config):
    trainer = make_trainer({"max_steps": 1, **config}, merge="none")
    trainer.train()
    assert trainer.last_update["grad_norm"] > 0


def test_without_spread_scaling_grpo_is_dr_grpo(make_trainer):
    assert make_trainer({"scale_rewards": "none"}).estimator.name == "dr_grpo"


@pytest.mark.parametrize("n_rows", [0, 1])
def test_a_data_set_smaller_than_a_batch_is_refused(make_trainer, tiny, n_rows):
    with pytest.raises(DataError, match=f"has {n_rows} rows, but one batch takes 2 prompts"):
        make_trainer(dataset=tiny.dataset(8).select(range(n_rows)))


def test_a_model_without_chat_template_is_refused(tiny):
    from agentr1_backend_trl.trainer import StepGRPOTrainer

    tokenizer = tiny.tokenizer()
    tokenizer.chat_template = None
    with pytest.raises(ConfigError, match="no chat template"):
        StepGRPOTrainer(
            tiny.model(),
            args=tiny.config("unused"),
            train_dataset=tiny.dataset(),
            processing_class=tokenizer,
            env=tiny.env,
        )


def test_a_prompt_longer_than_the_context_says_so(make_trainer, tiny):
    class Endless(tiny.env):
        async def reset(self, task):
            return "a" * 2000

    with pytest.raises(EnvError, match=r"the prompt has 20\d\d tokens and the context 1024"):
        make_trainer(env=Endless).train()


ARGS = {
    "use_vllm": False,
    "ds3_gather_for_generation": True,
    "vllm_mode": "colocate",
    "vllm_tensor_parallel_size": 1,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": None,
}
ALONE = {"live": True, "n_processes": 1, "sharded": None, "route": "live", "cap": None}


@pytest.mark.parametrize(
    ("args", "setting", "said"),
    [
        ({}, {"sharded": "fsdp", "n_processes": 2}, "FSDP"),
        ({"ds3_gather_for_generation": False}, {"sharded": "zero3"}, "ds3_gather_for_generation"),
        ({}, {"live": False, "route": "state_dict", "sharded": "zero3"}, "engine_weights='file'"),
        ({"use_vllm": True, "vllm_mode": "server"}, {"live": False, "n_processes": 2}, "vllm_mode='server'"),
        ({"use_vllm": True, "vllm_tensor_parallel_size": 2}, {"live": False}, "tensor_parallel_size"),
        ({}, {"cap": 2.0}, "importance_cap"),
    ],
)
def test_engines_that_could_not_keep_up_are_refused(args, setting, said):
    engine = SimpleNamespace(require=lambda **_: None, capabilities=EngineCapabilities())
    check_engine(engine, SimpleNamespace(**ARGS), **ALONE)
    with pytest.raises(ConfigError, match=said):
        check_engine(engine, SimpleNamespace(**{**ARGS, **args}), **{**ALONE, **setting})
