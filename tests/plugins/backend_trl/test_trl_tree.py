"""Token trees in the trainer: the same gradient as separate rows, whatever else is switched on."""

import pytest
import torch
from peft import LoraConfig
from transformers import TrainerCallback

from agentr1_backend_trl.tree_chunk import TreeSettings
from agentr1_core.errors import ConfigError


class Gradients(TrainerCallback):
    def __init__(self):
        self.found = []

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        self.found.append(torch.cat([p.grad.reshape(-1).clone() for p in model.parameters() if p.grad is not None]))


def gradient_of(make_trainer, config=None, **arguments):
    gradients = Gradients()
    settings = {"max_steps": 1, "max_grad_norm": 0.0, "loss_type": "dapo", **(config or {})}
    trainer = make_trainer(settings, callbacks=[gradients], **arguments)
    trainer.train()
    assert gradients.found[0].norm() > 0
    return gradients.found[0], trainer.last_update


def apart(found, wanted):
    return float((found.double() - wanted.double()).norm() / wanted.double().norm())


PATHS = {
    "mask": TreeSettings(path="mask"),
    "kv": TreeSettings(path="kv"),
    "cut": TreeSettings(max_tokens=120),
    "less than a row": TreeSettings(max_tokens=2),  # rows are never cut: the limit gives way to the longest
}


@pytest.mark.parametrize("tree", PATHS.values(), ids=PATHS)
@pytest.mark.parametrize("append", [True, False], ids=["continued", "rewritten"])
def test_trees_train_what_separate_rows_do(make_trainer, tiny, tree, append):
    dataset = tiny.dataset(append=append)
    separate, before = gradient_of(make_trainer, dataset=dataset, merge="none")
    found, figures = gradient_of(make_trainer, dataset=dataset, merge="tree", tree=tree)
    assert apart(found, separate) < 2e-6
    assert figures["tree/token_ratio"] > 1.5
    for name in ("loss", "entropy", "kl", "ledger/trained"):
        assert figures[name] == pytest.approx(before[name], rel=1e-4, abs=1e-6)


@pytest.mark.parametrize(
    "config",
    [
        {"gradient_checkpointing": True},
        {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4},
        {"loss_type": "sapo"},
        {"importance_sampling_level": "sequence"},
        {"entropy_coef": 0.3},
        {"temperature": 0.7},
    ],
    ids=lambda config: next(iter(config)),
)
def test_settings_that_meet_trees(make_trainer, config):
    separate, _ = gradient_of(make_trainer, config, merge="none")
    assert apart(gradient_of(make_trainer, config, merge="tree")[0], separate) < 2e-6


def test_an_adapter_and_its_reference(make_trainer):
    """The KL term scores the reference, which is the model without its adapter, through the same trees."""

    def adapted(**arguments):
        torch.manual_seed(0)
        lora = LoraConfig(task_type="CAUSAL_LM", r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
        return gradient_of(make_trainer, {"beta": 0.5}, peft_config=lora, **arguments)[0]

    assert apart(adapted(merge="tree"), adapted(merge="none")) < 2e-6


def test_several_updates_on_one_batch(make_trainer):
    """Old log-probs are scored through trees too."""
    config = {"max_steps": 3, "num_iterations": 3, "learning_rate": 1e-2}
    _, separate = gradient_of(make_trainer, config, merge="none")
    _, tree = gradient_of(make_trainer, config, merge="tree")
    for name in ("loss", "grad_norm", "clip_ratio", "drift"):
        assert tree[name] == pytest.approx(separate[name], rel=1e-3, abs=1e-6)


def test_evaluation_runs_trees_too(make_trainer, tiny):
    kwargs = {"config": {"per_device_eval_batch_size": 8}}
    losses = []
    for merge in ("none", "tree"):
        trainer = make_trainer(eval_dataset=tiny.dataset(), merge=merge, **kwargs)
        losses.append(trainer.evaluate()["eval_loss"])
    assert losses[1] == pytest.approx(losses[0], rel=1e-4, abs=1e-6)


def test_what_bounds_memory_is_the_tree(make_trainer):
    with pytest.raises(ConfigError, match="rows_per_forward=3"):
        make_trainer(merge="tree", rows_per_forward=3)
