"""The schema of a run file, section by section; every field's description is its documentation.

``load_config`` validates against it, and the job is built from it. Unknown keys are errors. Sections that name a
plugin offer keep further keys as that offer's own settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Section(BaseModel):
    """A section whose keys are all known. Types are not converted: ``"5"`` is no number."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class Named(BaseModel):
    """Something offered under a name, with its own settings beside it. ``env: tools`` means ``env: {name: tools}``."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    name: str = Field(description="A name on offer (see `agentr1 plugins`), or a class as `package.module:Class`.")

    @model_validator(mode="before")
    @classmethod
    def name_alone(cls, value: Any) -> Any:
        """A bare name stands for the section with that name."""
        return {"name": value} if isinstance(value, str) else value

    @property
    def settings(self) -> dict[str, Any]:
        """The offer's own settings: every key but ``name``."""
        return dict(self.model_extra or {})


class Run(Section):
    """The run folder and the seed."""

    name: str = Field(default="run", min_length=1, description="Name of the run's folder.")
    dir: str = Field(default="runs", description="Folder that holds the run folders.")
    seed: int = Field(default=0, ge=0, description="Seeds tasks, sampling, the base model and the trainer.")
    save_every: int = Field(
        default=0, ge=0, description="Save a checkpoint after every so many updates; 0 only at the end."
    )


class Renderer(Named):
    """How messages become tokens; further keys are arguments of the chat template."""

    name: str = Field(default="auto", description="`auto`, `template` or a family of the `renderers` package.")
    tool_format: str | None = Field(
        default=None, description="How tools are called where the chat template decides; Hermes when unset."
    )


class Env(Named):
    """An environment; the built-in tool environment unless another is named."""

    name: str = Field(default="tools", description="Name of the environment.")


class Estimator(Named):
    """A credit estimator with its settings."""

    name: str = Field(default="grpo", description="Name of the estimator.")


class Engine(Named):
    """The inference engine with its settings."""

    name: str = Field(default="transformers", description="Name of the engine.")


class Backend(Named):
    """The training backend with its settings (for TRL those of `GRPOConfig`)."""

    name: str = Field(default="trl", description="Name of the backend.")


class Data(Section):
    """Which tasks are played."""

    train: str | None = Field(default=None, description="File, folder or hub id; the recipe's tasks when unset.")
    eval: str | None = Field(default=None, description="Held-out tasks; the recipe's when unset and a recipe is named.")
    train_split: str = Field(default="train", description="Split to take where the data set has splits.")
    eval_split: str | None = Field(
        default=None, description="The same for `eval`; by default test, validation or train."
    )
    train_size: int | None = Field(default=None, ge=1, description="Tasks at most; 1024 from a recipe when unset.")
    eval_size: int | None = Field(
        default=None,
        ge=0,
        description="Tasks at most; 64 from a recipe. With `train` alone, so many are held out from it.",
    )
    shuffle: bool = Field(default=False, description="Shuffle rows by the run's seed before sizes are cut.")


class Reward(Section):
    """A reward on finished trajectories."""

    name: str = Field(description="A name on offer, or a function as `package.module:function`.")
    weight: float = Field(default=1.0, description="Factor of its values.")

    @model_validator(mode="before")
    @classmethod
    def name_alone(cls, value: Any) -> Any:
        """A bare name stands for the section with that name."""
        return {"name": value} if isinstance(value, str) else value


class Sampling(Section):
    """How the model is sampled in training."""

    max_tokens: int = Field(default=256, ge=1, description="Longest action, in tokens.")
    temperature: float = Field(default=1.0, ge=0, description="0 is greedy decoding.")
    top_p: float = Field(default=1.0, gt=0, le=1)
    top_k: int = Field(default=0, ge=0, description="0 is off.")
    min_p: float = Field(default=0.0, ge=0, lt=1)
    stop_token_ids: list[int] = Field(default_factory=list, description="Beside those of the renderer.")


class EvaluationSampling(Section):
    """What evaluation samples differently; a field left out is as in `sampling`."""

    max_tokens: int | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=None, ge=0)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=0)
    min_p: float | None = Field(default=None, ge=0, lt=1)
    stop_token_ids: list[int] | None = None


class Evaluation(Section):
    """When and how held-out tasks are played."""

    every: int = Field(default=0, ge=0, description="Evaluate after every so many updates; 0 only before and after.")
    sampling: EvaluationSampling = Field(default_factory=EvaluationSampling)


class Rollout(Section):
    """What an episode may use, and how many run at once."""

    max_steps: int = Field(default=16, ge=1, description="Turns of the policy in one episode.")
    max_tokens_per_episode: int | None = Field(default=None, ge=1, description="Sampled tokens of one episode.")
    max_context: int | None = Field(default=None, ge=2, description="Prompt plus action, in tokens.")
    min_tokens_per_step: int = Field(default=1, ge=1, description="A turn with less room than this is not begun.")
    step_timeout_s: float | None = Field(default=300.0, gt=0, description="Seconds for one turn.")
    episode_timeout_s: float | None = Field(default=1800.0, gt=0, description="Seconds for one episode.")
    engine_retries: int = Field(default=2, ge=0, description="Tries more after an engine fault.")
    retry_delay_s: float = Field(default=0.5, ge=0, description="Seconds before the first retry; doubles with each.")
    concurrency: int = Field(default=256, ge=1, description="Episodes in flight at most.")
    min_group_size: int = Field(default=2, ge=1, description="Groups with fewer usable trajectories are left out.")


class Algorithm(Section):
    """How trajectories become updates."""

    estimator: Estimator = Field(default_factory=Estimator, description="Credit estimator.")
    group_size: int = Field(default=8, ge=1, description="Trajectories of one task, compared with each other.")
    prompts_per_update: int = Field(default=8, ge=1, description="Tasks for each optimiser update.")
    updates: int = Field(default=100, ge=0, description="Optimiser updates of the run.")
    merge: Literal["none", "linear", "tree"] = Field(default="linear", description="How steps share training rows.")
    shuffle_advantages: bool = Field(
        default=False, description="Negative control: advantages go to random trajectories."
    )


class WarmStart(BaseModel):
    """Supervised fine-tuning before RL; further keys are the backend's own settings for it."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    when: Literal["scratch", "always", "never"] = Field(
        default="scratch", description="`scratch`: only when the recipe made the model."
    )
    demonstrations: int | str | None = Field(
        default=None, description="How many of the recipe's, or a data set of `prompt` and `completion` messages."
    )

    @property
    def settings(self) -> dict[str, Any]:
        """The backend's own settings."""
        return dict(self.model_extra or {})


class Report(Section):
    """What is kept of trajectories, and what the report shows."""

    enabled: bool = Field(default=True, description="Write `report.html` at the end.")
    kept_per_update: int = Field(
        default=4, ge=0, description="Trajectories of each update kept in `trajectories.jsonl`."
    )
    trajectories: int = Field(default=4, ge=0, description="Trajectories shown step by step in the report.")


class RunConfig(Section):
    """A whole run file."""

    run: Run = Field(default_factory=Run)
    model: str | None = Field(
        default=None, description="Hub id or folder; `recipe` for the model that the recipe makes."
    )
    renderer: Renderer = Field(default_factory=Renderer)
    recipe: Named | None = Field(default=None, description="A recipe with its settings.")
    data: Data = Field(default_factory=Data)
    env: Env | None = Field(
        default=None, description="Environment; the built-in `tools` when neither env nor flow is set."
    )
    flow: Named | None = Field(default=None, description="Flow, in place of an environment.")
    tools: list[Named] = Field(default_factory=list, description="Tools on offer, each a name or with settings.")
    context: Named | None = Field(default=None, description="Context policy around the environment; append when unset.")
    reward: list[Reward] = Field(default_factory=list, description="Rewards on finished trajectories.")
    sampling: Sampling = Field(default_factory=Sampling)
    evaluation: Evaluation = Field(default_factory=Evaluation)
    rollout: Rollout = Field(default_factory=Rollout)
    algorithm: Algorithm = Field(default_factory=Algorithm)
    engine: Engine = Field(default_factory=Engine, description="Inference engine.")
    backend: Backend = Field(default_factory=Backend, description="Training backend.")
    warm_start: WarmStart = Field(default_factory=WarmStart)
    report: Report = Field(default_factory=Report)

    @model_validator(mode="before")
    @classmethod
    def _single_reward_or_tool(cls, value: Any) -> Any:
        """``reward: exact_match`` and ``tools: calculator`` mean lists of one."""
        if not isinstance(value, Mapping):
            return value
        alone = {key: [value[key]] for key in ("reward", "tools") if isinstance(value.get(key), (str, Mapping))}
        return {**value, **alone}
