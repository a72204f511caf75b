"""The agent executor: plays a run file's flow inside OpenRLHF's rollout workers, with their engine.

OpenRLHF makes one in each worker and calls ``execute`` once for each sample of a prompt. To the step trainer it hands
the whole trajectory; to a stock trainer the single row that a growing context makes.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any

from agentr1_backend_openrlhf.own_engine import OpenRLHFEngine
from agentr1_backend_openrlhf.private_names import find
from agentr1_backend_openrlhf.prompts import read_label
from agentr1_backend_openrlhf.request import TRAJECTORY, Request
from agentr1_backend_openrlhf.run import Run, load_run
from agentr1_backend_openrlhf.stitch import single_row
from agentr1_core.engine import SamplingParams
from agentr1_core.episode import Policy
from agentr1_core.errors import PluginError
from agentr1_core.mdp import Trajectory
from agentr1_core.rollout import Rollouts

_Base: Any = find("AgentExecutorBase")


class AgentExecutor(_Base):  # type: ignore[misc]
    """Plays the flow of the run file that the environment names."""

    def __init__(self) -> None:
        self._run = load_run()
        self._table: _Table | None = None
        self._opening = asyncio.Lock()
        self._members: Counter[str] = Counter()
        self._prompts = 0

    async def execute(
        self,
        prompt: Any,
        label: Any,
        sampling_params: Any,
        max_length: int,
        hf_tokenizer: Any,
        llm_engine: Any,
        images: Any = None,
    ) -> dict[str, Any]:
        """Play one episode; see ``openrlhf.utils.agent.AgentExecutorBase``.

        Raises:
            PluginError: There are images; or a stock trainer would need more than one row.
            EnvError: The episode failed and a stock trainer asked for it.
        """
        if isinstance(label, Request) and label.close:
            return await self._close()
        if images:
            raise PluginError("Backend 'openrlhf' plays no prompts with images.", "Remove `--data.image_key`.")
        request = label if isinstance(label, Request) else self._stock_request(label)
        table = await self._open(hf_tokenizer, llm_engine, type(sampling_params), max_length)
        member = self._next_member(request)
        task, split = read_label(prompt, request.label)
        sampling = self._run.sampling(request.training and split == "train")
        if split == "train":  # held-out tasks of the run file are sampled as it says, whatever OpenRLHF's flags are
            sampling = sampling_of(sampling, sampling_params)
        trajectory = await table.play(task, request.group_id, member, sampling)
        told = {"prompt": prompt, "label": request.label, "images": None, "mm_train_inputs": None}
        if request is label:
            return {**told, **carrier(trajectory), TRAJECTORY: trajectory}
        return {**told, **single_row(trajectory, with_logprobs=sampling_params.logprobs is not None)}

    def _stock_request(self, label: Any) -> Request:
        self._prompts += 1
        return Request(label, f"stock/{self._prompts}", 1)

    def _next_member(self, request: Request) -> int:
        """The place of an episode in its group: OpenRLHF asks for them one by one and says no number."""
        member = self._members[request.group_id]
        self._members[request.group_id] += 1
        if self._members[request.group_id] == request.size:
            del self._members[request.group_id]
        return member

    async def _open(self, tokenizer: Any, handle: Any, sampling_type: Any, max_length: int) -> _Table:
        async with self._opening:
            if self._table is None:
                engine = OpenRLHFEngine.attached(handle, sampling_type, max_length)
                table = _Table(self._run, engine, tokenizer)
                await table.open()
                self._table = table
            return self._table

    async def _close(self) -> dict[str, Any]:
        async with self._opening:
            table, self._table = self._table, None
            if table is not None:
                await table.close()
        return {}


class _Table:
    """The run's flow, tools and engine in one worker, and who plays with them."""

    def __init__(self, run: Run, engine: OpenRLHFEngine, tokenizer: Any) -> None:
        self._run, self._engine = run, engine
        self._renderer = run.make_renderer(tokenizer)
        self._reward = run.make_reward()
        self._flow = run.make_flow()
        self._owner = self._rollouts(run.sampling(True))
        self._by_sampling: dict[SamplingParams, Rollouts] = {}
        self._gate = asyncio.Semaphore(max(run.config.rollout.concurrency // run.n_own_engines, 1))

    def _rollouts(self, sampling: SamplingParams) -> Rollouts:
        return Rollouts(
            self._flow,
            Policy(self._engine, self._renderer, sampling),
            reward=self._reward,
            limits=self._run.limits,
            tools=self._run.tools,
        )

    async def open(self) -> None:
        await self._owner.start()

    async def play(self, task: Any, group_id: str, member: int, sampling: SamplingParams) -> Trajectory:
        """One episode. Only the owner opened flow and tools; the others play with them."""
        rollouts = self._by_sampling.setdefault(sampling, self._rollouts(sampling))
        async with self._gate:
            return await rollouts.play(task, group_id, member)

    async def close(self) -> None:
        await self._owner.close()


def sampling_of(told: SamplingParams, given: Any) -> SamplingParams:
    """The run file's sampling, with the distribution that OpenRLHF asks for, since its trainer reckons with that.

    Args:
        told: What the run file says; its ``max_tokens`` holds unless OpenRLHF's is smaller, and its ``top_k`` and
            ``min_p``, which OpenRLHF has no flags for.
        given: vLLM's ``SamplingParams``.
    """
    longest = told.max_tokens if given.max_tokens is None else min(told.max_tokens, given.max_tokens)
    return replace(
        told,
        max_tokens=longest,
        temperature=float(given.temperature),
        top_p=float(given.top_p),
    )


def carrier(trajectory: Trajectory) -> dict[str, Any]:
    """What OpenRLHF's own bookkeeping wants to see of a trajectory: its last step, and its return as the score.

    The step trainer reads none of it. A failed episode has no score, so that OpenRLHF filters no group by it.
    """
    ids, n_prompt = [0], 1
    if trajectory.steps:
        last = trajectory.steps[-1]
        ids, n_prompt = [*last.prompt_ids.tolist(), *last.action.token_ids.tolist()], len(last.prompt_ids)
    return {
        "observation_tokens": ids,
        "action_ranges": [(n_prompt, len(ids))],
        "rollout_log_probs": None,
        "reward": trajectory.ret,
        "scores": None if trajectory.stop_reason.is_failure else trajectory.ret,
        "truncated": trajectory.stop_reason.is_truncation,
        "extra_logs": {},
    }
