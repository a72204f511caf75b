"""``TRLBackend`` on whole jobs: the conformance kit, settings, warm start, resuming, adapters."""

import importlib.util
import json
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM

from agentr1_backend_trl.backend import TRLBackend
from agentr1_backend_trl.trainer import StepGRPOTrainer
from agentr1_core.backend import TrainingJob, WarmStart
from agentr1_core.credit import ESTIMATORS
from agentr1_core.engine import SamplingParams
from agentr1_core.env_loop import AgentEnvLoop
from agentr1_core.episode import RolloutLimits
from agentr1_core.errors import ConfigError, DataError
from agentr1_core.plugins import PluginManager
from agentr1_core.task import Task
from agentr1_core.testing.backend_kit import BackendKit
from agentr1_engine_transformers.engine import TransformersEngine

DEMONSTRATIONS = [
    {
        "prompt": [{"role": "user", "content": f"go {i}"}],
        "completion": [{"role": "assistant", "content": "aaaa"}],
    }
    for i in range(16)
]


def job_in(folder, tiny, **changes):
    """Two updates of a tiny model on the walking task."""
    model = folder / "model"
    tiny.model().save_pretrained(model)
    tiny.tokenizer().save_pretrained(model)
    job = TrainingJob(
        model=str(model),
        run_dir=folder / "run",
        train_tasks=[Task({"n": i, "kind": ["a", i]}) for i in range(6)],  # Arrow could not hold such a column
        eval_tasks=[Task({"n": i}) for i in range(4)],
        flow=lambda: AgentEnvLoop(lambda task: tiny.env(turns=2)),
        reward=None,
        tools=None,
        estimator=ESTIMATORS["grpo"],
        engine=(TransformersEngine, {}),
        limits=RolloutLimits(max_steps=4),
        sampling=SamplingParams(max_tokens=6),
        eval_sampling=SamplingParams(max_tokens=6, temperature=0.0),
        group_size=4,
        prompts_per_update=2,
        updates=2,
        concurrency=64,
        min_group_size=2,
        merge="linear",
        renderer=("auto", {}),
        settings={"learning_rate": 1e-3},
    )
    return replace(job, **changes)


def neighbour(name):
    """Another file of this folder as a module."""
    spec = importlib.util.spec_from_file_location(f"neighbour_{name}", Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="class")
def _builders(request):
    """``BackendKit`` makes jobs without fixtures; hand it the builders of conftest and the reference gradient."""
    request.cls.tiny_parts = neighbour("conftest")
    request.cls.gradient_parts = neighbour("test_trl_gradient")


@pytest.mark.usefixtures("_builders")
class TestTRLConformance(BackendKit):
    def make_backend(self):
        return TRLBackend()

    def make_job(self, run_dir):
        class Builders:
            model = staticmethod(self.tiny_parts.build_model)
            tokenizer = staticmethod(self.tiny_parts.build_tokenizer)
            env = self.tiny_parts.Walk

        return job_in(run_dir, Builders)

    def gradients(self):
        """The gradient of one update, and that of the loss written out by hand on the raw steps."""
        tiny, by_hand = self.tiny_parts, self.gradient_parts
        recorder, kept = by_hand.Recorder(), by_hand.Gradients()
        with tempfile.TemporaryDirectory() as folder:
            args = tiny.config_for(folder, max_steps=1, max_grad_norm=0.0, loss_type="dapo")
            StepGRPOTrainer(
                tiny.build_model(),
                args=args,
                train_dataset=tiny.rows(),
                processing_class=tiny.build_tokenizer(),
                limits=RolloutLimits(max_steps=4),
                env=tiny.Walk,
                hooks=recorder,
                callbacks=[kept],
            ).train()
        _, wanted = by_hand.reference(tiny.build_model(), recorder.groups, "token-mean")
        return kept.found[0].numpy(), wanted.numpy()


def test_the_plugin_is_found_by_name():
    manager = PluginManager.discover()
    assert manager.get("backend", "trl") is TRLBackend


def test_warm_start_teaches_the_demonstrations(tmp_path, tiny):
    settings = {"max_steps": 40, "learning_rate": 1e-2, "per_device_train_batch_size": 16}
    job = job_in(
        tmp_path,
        tiny,
        updates=0,
        warm_start=WarmStart(demonstrations=DEMONSTRATIONS, settings=settings),
        eval_tasks=[Task({"n": i}) for i in range(3)],
    )
    result = TRLBackend().train(job)
    assert result.success_before == 1.0  # every "a" is rewarded
    assert result.updates == 0
    tuned = AutoModelForCausalLM.from_pretrained(result.checkpoint)
    tokenizer = tiny.tokenizer()
    ids = tokenizer.apply_chat_template(
        DEMONSTRATIONS[0]["prompt"], add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    said = tuned.generate(**ids, max_new_tokens=5, do_sample=False)[0, ids["input_ids"].shape[1] :]
    assert tokenizer.decode(said) == "aaaa<|im_end|>"


def test_resuming_a_job(tmp_path, tiny):
    job = job_in(tmp_path, tiny, save_every=1)
    before = TRLBackend().train(job)
    after = TRLBackend().train(replace(job, resume=True, updates=3))
    assert after.updates == 3
    assert after.success_before == before.success_before


def test_resuming_what_was_never_saved(tmp_path, tiny):
    with pytest.raises(ConfigError, match="no checkpoint to resume"):
        TRLBackend().train(job_in(tmp_path, tiny, resume=True))


def test_an_adapter_is_merged_into_the_checkpoint(tmp_path, tiny):
    settings = {"lora": {"r": 4, "target_modules": ["q_proj"]}, "learning_rate": 1e-2}
    result = TRLBackend().train(job_in(tmp_path, tiny, settings=settings))
    assert (result.checkpoint / "adapter" / "adapter_config.json").is_file()
    merged = AutoModelForCausalLM.from_pretrained(result.checkpoint)
    weights = dict(merged.named_parameters())
    changed = [n for n, p in tiny.model().named_parameters() if not weights[n].allclose(p)]
    assert changed
    assert all("q_proj" in name for name in changed)


def test_evaluation_between_updates_is_reported(tmp_path, tiny):
    seen = []

    class Log:
        def agentr1_update(self, *, metrics, step):
            seen.append("eval/success" in metrics)

        def agentr1_group(self, **_):
            pass

        agentr1_step = agentr1_trajectory = agentr1_group

    TRLBackend().train(job_in(tmp_path, tiny, eval_every=1, updates=3, hooks=Log()))
    assert seen == [True, True, False]  # the last one is the evaluation at the end
    assert list((tmp_path / "run" / "tensorboard").glob("events.*"))
    assert json.loads((tmp_path / "run" / "trainer" / "success_before.json").read_text()) is not None


def test_groups_of_one_under_an_estimator_without_groups(tmp_path, tiny):
    result = TRLBackend().train(
        job_in(tmp_path, tiny, group_size=1, prompts_per_update=4, estimator=ESTIMATORS["reinforce_pp"])
    )
    assert result.ledger["trained"] == result.ledger["sampled"] > 0


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"settings": {"learning_rat": 1.0}}, "Did you mean `learning_rate`"),
        ({"settings": {"num_generations": 4}}, "algorithm.group_size"),
        ({"settings": {"learning_rate": "fast"}}, "learning_rate"),
        ({"settings": {"rows_per_forward": 0}}, "at least 1"),
        ({"settings": {"threads": "all"}}, "backend.threads"),
        ({"settings": {"gradient_accumulation_steps": 3}}, "split evenly"),
        ({"group_size": 1, "prompts_per_update": 1}, "one episode"),
        ({"model": "/no/such/model"}, "/no/such/model"),
        ({"settings": {"lora": {"rank": 4}}}, "backend.lora"),
        ({"warm_start": WarmStart(demonstrations=DEMONSTRATIONS, settings={"max_step": 1})}, "max_steps"),
    ],
)
def test_wrong_settings_name_the_field(tmp_path, tiny, changes, said):
    with pytest.raises(ConfigError, match=said):
        TRLBackend().train(job_in(tmp_path, tiny, **changes))


def test_demonstrations_need_both_columns(tmp_path, tiny):
    broken = WarmStart(demonstrations=[{"prompt": "x"}])
    with pytest.raises(DataError, match="no 'completion'"):
        TRLBackend().train(job_in(tmp_path, tiny, warm_start=broken))


def test_a_tokenizer_larger_than_the_model_is_refused(tmp_path, tiny):
    job = job_in(tmp_path, tiny)
    tokenizer = tiny.tokenizer()
    tokenizer.add_tokens([f"<extra{i}>" for i in range(20)])
    tokenizer.save_pretrained(job.model)
    with pytest.raises(ConfigError, match="only 264 embeddings"):
        TRLBackend().train(job)


def test_a_job_with_a_critic_is_resumed_with_it(tmp_path, tiny):
    settings = {"learning_rate": 1e-3, "loss": "gspo", "critic": {"kind": "shared", "learning_rate": 1e-2}}
    job = job_in(tmp_path, tiny, save_every=1, settings=settings, estimator=ESTIMATORS["step_gae"]({"gamma": 0.99}))
    TRLBackend().train(job)
    assert (tmp_path / "run" / "trainer" / "checkpoint-2" / "critic.pt").is_file()
    seen = []

    class Log:
        def agentr1_update(self, *, metrics, step):
            seen.append((step, metrics["critic/value"]))

        def agentr1_group(self, **_):
            pass

        agentr1_step = agentr1_trajectory = agentr1_group

    result = TRLBackend().train(replace(job, resume=True, updates=3, hooks=Log()))
    assert result.updates == 3
    ((step, value),) = seen
    assert step == 3
    assert value != 0  # a new critic's values are all zero


def test_a_job_with_a_teacher(tmp_path, tiny):
    tiny.model(seed=5).save_pretrained(tmp_path / "teacher")
    settings = {"learning_rate": 1e-3, "teacher": str(tmp_path / "teacher"), "loss": {"name": "ppo", "clip_high": 0.3}}
    result = TRLBackend().train(job_in(tmp_path, tiny, settings=settings, estimator=ESTIMATORS["distill"]()))
    assert result.ledger["trained"] == result.ledger["sampled"] > 0


@pytest.mark.parametrize(
    ("estimator", "settings", "said"),
    [
        ("grpo", {"critic": {}}, "reads no values"),
        ("step_gae", {"critic": {"kind": "both"}}, "kind"),
        ("distill", {}, "needs a teacher"),
        ("grpo", {"loss": {"name": "gsop"}}, "loss"),
        ("grpo", {"loss": 3}, r"backend\.loss"),
    ],
)
def test_losses_critics_and_teachers_are_checked_before_anything_is_loaded(tmp_path, tiny, estimator, settings, said):
    with pytest.raises(ConfigError, match=said):
        TRLBackend().check(job_in(tmp_path, tiny, estimator=ESTIMATORS[estimator](), settings=settings))
