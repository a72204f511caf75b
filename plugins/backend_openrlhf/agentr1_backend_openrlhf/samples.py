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
from agentr1_backend_openrlhf.prompts import read_label
from agentr1_backend_openrlhf.request import TRAJECTORY, Request
from agentr1_backend_openrlhf.run import Run
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
        self._eval_batches = 0

    def generate_eval_samples(self, **generate_kwargs: Any) -> Any:
        """Play all held-out prompts; their trajectories are kept in ``held_out``."""
        self._training, self._eval_batches = False, 0
        try:
            carriers = super().generate_eval_samples(**generate_kwargs)
        finally:
            self._training = True
        self.held_out: list[Trajectory] = [each.trajectory for each in carriers]
        return carriers

    def take_weights(self, folder: str, version: int) -> None:
        """Give the engine new weights, where OpenRLHF does not do so itself."""
        raise NotImplementedError

    def close(self) -> None:
        """Close environments, tools and engines."""
        raise NotImplementedError

    def _next_stream(self) -> str:
        """Names the groups of one call; evaluations are named alike, so that two of them differ by the policy alone."""
        if self._training:
            self._rounds += 1
            return str(self._rounds - 1)
        self._eval_batches += 1
        return f"eval/{self._eval_batches - 1}"

    def _carrier(self, trajectory: Trajectory, prompt: Any, label: Any, **generate_kwargs: Any) -> Any:
        told = {"prompt": prompt, "label": label, "images": None, "mm_train_inputs": None}
        made = super()._process_response_into_experience({**told, **carrier(trajectory)}, **generate_kwargs)
        made.trajectory = trajectory
        return made


class OwnEnginesGenerator(CarryingGenerator):
    """Asks the agent executors in OpenRLHF's rollout workers for trajectories."""

    def take_weights(self, folder: str, version: int) -> None:
        raise PluginError("OpenRLHF gives its own engines their weights itself.", "Leave them to its trainer.")

    def close(self) -> None:
        request = Request(None, "close", 1, close=True)
        told = {"prompt": "", "label": request, "sampling_params": None, "max_length": 0, "hf_tokenizer": None}
        refs = [engine.generate_responses.remote(**told, num_samples=1) for engine in self.vllm_engines]
        if refs:
            ray.wait(refs, num_returns=len(refs), timeout=CLOSE_TIMEOUT_S)

    def _dispatch_prompts_to_vllm(self, prompts: Sequence[Any], labels: Sequence[Any], **kwargs: Any) -> Any:
        stream = self._next_stream()
        size = int(kwargs.get("n_samples_per_prompt", self.args.rollout.n_samples_per_prompt))
        requests = [
            Request(label, f"{stream}/{position}", size, training=self._training)
            for position, label in enumerate(labels)
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
        tasks = [read_label(prompt, label)[0] for prompt, label in zip(prompts, labels, strict=True)]
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
