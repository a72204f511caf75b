"""Where the step trainer's trajectories come from: OpenRLHF's own engines, or the collector with an engine plugin.

Both stand in for OpenRLHF's samples generator and give one carrier a trajectory, an experience of OpenRLHF's with the
trajectory as an attribute, so that its counting of prompts goes on as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ray

from agentr1_backend_openrlhf.collector import Collector
from agentr1_backend_openrlhf.executor import carrier
from agentr1_backend_openrlhf.private_names import find
from agentr1_backend_openrlhf.request import TRAJECTORY, Request
from agentr1_backend_openrlhf.run import Run, task_label
from agentr1_core.errors import PluginError
from agentr1_core.mdp import Trajectory
from agentr1_core.rollout import Play

_Base: Any = find("SamplesGenerator")
_next_prompts: Any = find("collect_prompts")
#: Seconds that a rollout worker may take to close its environments and tools.
CLOSE_TIMEOUT_S = 60.0


class CarryingGenerator(_Base):  # type: ignore[misc]
    """What both generators share."""

    def __init__(self, *, run: Run, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._agentr1 = run
        self._rounds = 0
        self._training = True

    def generate_eval_samples(self, **generate_kwargs: Any) -> Any:
        """OpenRLHF's evaluation on its own data; see ``play_held_out`` for the run file's."""
        self._training = False
        try:
            return super().generate_eval_samples(**generate_kwargs)
        finally:
            self._training = True

    def play_held_out(self, generate_kwargs: dict[str, Any]) -> list[Trajectory]:
        """One episode of each held-out task of the run file."""
        raise NotImplementedError

    def take_weights(self, folder: str, version: int) -> None:
        """Give the engine new weights, where OpenRLHF does not do so itself."""
        raise NotImplementedError

    def close(self) -> None:
        """Close environments, tools and engines."""
        raise NotImplementedError

    def _next_stream(self) -> str:
        """Names the groups of one call: evaluations are all named alike."""
        if not self._training:
            return "eval"
        self._rounds += 1
        return str(self._rounds - 1)

    def _carrier(self, trajectory: Trajectory, prompt: Any, label: Any, **generate_kwargs: Any) -> Any:
        told = {"prompt": prompt, "label": label, "images": None, "mm_train_inputs": None}
        made = super()._process_response_into_experience({**told, **carrier(trajectory)}, **generate_kwargs)
        made.trajectory = trajectory
        return made


class OwnEnginesGenerator(CarryingGenerator):
    """Asks the agent executors in OpenRLHF's rollout workers for trajectories."""

    def play_held_out(self, generate_kwargs: dict[str, Any]) -> list[Trajectory]:
        tasks = self._agentr1.tasks["eval"]
        told = {**generate_kwargs, "n_samples_per_prompt": 1}
        sampling = self._agentr1.sampling(False)
        told |= {"temperature": sampling.temperature, "top_p": sampling.top_p, "top_k": sampling.top_k or -1}
        told["max_new_tokens"] = sampling.max_tokens
        self._training = False
        try:
            labels = [task_label("eval", position) for position in range(len(tasks))]
            refs = self._dispatch_prompts_to_vllm([""] * len(tasks), labels, **told)
            return [answer[TRAJECTORY] for answers in ray.get(refs) for answer in answers]
        finally:
            self._training = True

    def take_weights(self, folder: str, version: int) -> None:
        raise PluginError("OpenRLHF gives its own engines their weights itself.", "Leave them to its trainer.")

    def close(self) -> None:
        request = Request(None, "close", close=True)
        told = {"prompt": "", "label": request, "sampling_params": None, "max_length": 0, "hf_tokenizer": None}
        refs = [engine.generate_responses.remote(**told, num_samples=1) for engine in self.vllm_engines]
        ray.wait(refs, num_returns=len(refs), timeout=CLOSE_TIMEOUT_S) if refs else None

    def _dispatch_prompts_to_vllm(self, prompts: Sequence[Any], labels: Sequence[Any], **kwargs: Any) -> Any:
        stream = self._next_stream()
        requests = [
            Request(label, f"{stream}/{position}", training=self._training) for position, label in enumerate(labels)
        ]
        return super()._dispatch_prompts_to_vllm(prompts, requests, **kwargs)

    def _process_response_into_experience(self, response: dict[str, Any], **generate_kwargs: Any) -> Any:
        if TRAJECTORY not in response:
            raise PluginError(
                "The agent executor of this launch gives no trajectories.",
                "Give `--train.agent_func_path` the path that `agentr1 openrlhf-command` prints.",
            )
        return self._carrier(response[TRAJECTORY], response["prompt"], response["label"], **generate_kwargs)


class CollectorGenerator(CarryingGenerator):
    """Plays the episodes in this process, with an engine plugin."""

    def __init__(self, *, run: Run, model: str, **kwargs: Any) -> None:
        super().__init__(run=run, **kwargs)
        self._collector = Collector(run, model, self.tokenizer)

    def play_held_out(self, generate_kwargs: dict[str, Any]) -> list[Trajectory]:
        plays = [Play(task, f"eval/{position}") for position, task in enumerate(self._agentr1.tasks["eval"])]
        return self._collector.play(plays, training=False)

    def take_weights(self, folder: str, version: int) -> None:
        self._collector.take_weights(folder, version)

    def close(self) -> None:
        self._collector.close()

    def _generate_vllm(
        self, dataloader_iter: Any, num_prompts: int, dynamic_filtering: bool, **generate_kwargs: Any
    ) -> tuple[list[Any], int, bool]:
        prompts, labels, _, exhausted = _next_prompts(dataloader_iter, num_prompts)
        if not prompts:
            return [], 0, True
        stream = self._next_stream()
        n_samples = generate_kwargs.get("n_samples_per_prompt", self.args.rollout.n_samples_per_prompt)
        tasks = [self._agentr1.task_of(prompt, label) for prompt, label in zip(prompts, labels, strict=True)]
        plays = [
            Play(task, f"{stream}/{position}", member)
            for position, task in enumerate(tasks)
            for member in range(n_samples)
        ]
        played = self._collector.play(plays, training=self._training)
        carriers = [
            self._carrier(trajectory, prompts[number // n_samples], labels[number // n_samples], **generate_kwargs)
            for number, trajectory in enumerate(played)
        ]
        return carriers, len(prompts), exhausted
