"""Settings that could not be kept are refused with their name and a mend, before anything is loaded or played."""

import pytest

from agentr1_core.errors import ConfigError
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
        ({"merge": "tree"}, "merge is 'tree'"),
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
