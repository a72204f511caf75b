"""One episode as the flow sees it: renders, samples, keeps the limits, and stores every step.

The collector makes one ``Episode`` for each task it plays and reads the trajectory from it at the end. What the
engine sampled is stored as it came; this module never changes a token.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from agentr1_core.chat_engine import ChatEngine, ChatReply, ContextExceeded
from agentr1_core.engine import Generation, InferenceEngine, SamplingParams
from agentr1_core.env import ObservationLike, StepResult, as_observation, finite_reward
from agentr1_core.errors import EngineError, EnvError
from agentr1_core.flow import EpisodeOver, FlowContext
from agentr1_core.mdp import (
    Action,
    FinishReason,
    Message,
    Observation,
    Step,
    StopReason,
    TokenArray,
    float_array,
    token_array,
)
from agentr1_core.render import ChatRenderer, ContextTracker, Parsed

R = TypeVar("R")

#: Seconds an aborted engine call may take to hand back its partial result.
ABORT_GRACE_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutLimits:
    """What an episode may use. ``None`` means no limit."""

    #: Turns of the policy in one episode.
    max_steps: int = 16
    #: Sampled tokens of one episode, checked before each turn.
    max_tokens_per_episode: int | None = None
    #: Prompt plus action, in tokens; the engine's own limit holds as well.
    max_context: int | None = None
    #: A turn is not begun when fewer tokens than this could be sampled.
    min_tokens_per_step: int = 1
    #: Seconds for one turn: sampling and the environment's answer.
    step_timeout_s: float | None = 300.0
    #: Seconds for the whole episode.
    episode_timeout_s: float | None = 1800.0
    #: How often one turn's sampling is tried again after an engine fault.
    engine_retries: int = 2
    #: Seconds before the first retry; doubles with each.
    retry_delay_s: float = 0.5


@dataclass(frozen=True, slots=True)
class Policy:
    """A model that answers: its engine, its renderer, and how it is sampled."""

    engine: InferenceEngine
    renderer: ChatRenderer
    sampling: SamplingParams = field(default_factory=SamplingParams)


@dataclass(frozen=True, slots=True)
class ChatPolicy:
    """A model behind a chat endpoint: it plays like any other, and its steps cannot be trained."""

    engine: ChatEngine
    sampling: SamplingParams = field(default_factory=SamplingParams)


@dataclass(slots=True)
class _OpenStep:
    """A step that is still being filled in."""

    thread: str
    observation: Observation
    action: Action
    continued: bool
    result: StepResult | None = None
    next_observation: Observation | None = None


class Episode(FlowContext):
    """The context of one episode.

    Args:
        id: Names the episode; also the engine's session.
        policies: ``"policy"`` is in training, others only answer.
        limits: What it may use.
        seeds: Gives the sampling seed of a turn by its number, or ``None`` for no seed.
    """

    def __init__(
        self,
        id: str,
        policies: Mapping[str, Policy | ChatPolicy],
        limits: RolloutLimits,
        seeds: Callable[[int], int | None] = lambda _turn: None,
    ) -> None:
        self.id = id
        self.step_timeout_s = limits.step_timeout_s
        self.counters: Counter[str] = Counter()
        #: Set when a limit ended the episode, whatever the flow does afterwards.
        self.over: EpisodeOver | None = None
        self._policies = policies
        self._limits = limits
        self._seeds = seeds
        self._steps: list[_OpenStep] = []
        self._trackers: dict[tuple[str, str], ContextTracker] = {}
        self._last_in_thread: dict[str, _OpenStep] = {}
        self._n_sampled = 0
        self._n_calls = 0

    async def generate(
        self, observation: ObservationLike, *, thread: str = "main", engine: str = "policy", **sampling: Any
    ) -> Action:
        if self.over is not None:
            await asyncio.sleep(0)  # a flow that ignores EpisodeOver and asks for ever must not block the loop
        policy = self._policies.get(engine)
        if policy is None:
            raise EnvError(
                f"The flow asks the engine '{engine}'; this run has: {', '.join(self._policies)}.",
                "Give it to `Rollouts(others=...)`.",
            )
        shown = as_observation(observation, "the flow")
        # Copies, here and of the answer: an environment may go on to change its messages in place.
        shown = replace(shown, messages=tuple(_copy(message) for message in shown.messages))
        if isinstance(policy, ChatPolicy):
            return await self._chat(policy, shown, thread, engine, sampling)
        tracker = self._trackers.setdefault((engine, thread), ContextTracker(policy.renderer))
        rendered = tracker.render(shown)
        shown = replace(shown, prompt_ids=rendered.prompt_ids)
        in_training = engine == "policy"
        if in_training:
            self._answer_previous(thread, shown)
        params = self._within_limits(policy, len(rendered.prompt_ids), sampling, in_training)
        stops = (*params.stop_token_ids, *policy.renderer.stop_token_ids)
        params = replace(params, stop_token_ids=tuple(dict.fromkeys(stops)))
        if rendered.continued:
            self.counters["tokens/continued"] += len(rendered.prompt_ids)
            self.counters["prompts/continued"] += 1
        else:
            self.counters["tokens/rerendered"] += len(rendered.prompt_ids)
            self.counters[f"prompts/rerendered/{rendered.reason}"] += 1

        def keep(generation: Generation) -> tuple[Action, Parsed]:
            action, parsed = self._action(policy, params, generation, shown)
            if in_training:
                self._open_step(thread, shown, action, rendered.continued)
            return action, parsed

        session = self.id if (engine, thread) == ("policy", "main") else f"{self.id}/{engine}/{thread}"
        prompt_ids = rendered.prompt_ids
        generation = await self._retried(lambda: self._sample_once(policy.engine, prompt_ids, params, session, keep))
        action, parsed = keep(generation)
        tracker.track(shown, action.token_ids, replace(parsed, message=_copy(parsed.message)))
        if action.finish_reason is FinishReason.ABORT:
            raise self._end(StopReason.ABORTED, "the engine aborted the action")
        return action

    async def _chat(
        self, policy: ChatPolicy, shown: Observation, thread: str, engine: str, overrides: Mapping[str, Any]
    ) -> Action:
        """The turn of a policy that is given messages and answers with one; nothing is rendered."""
        in_training = engine == "policy"
        if in_training:
            self._answer_previous(thread, shown)
        params = self._within_limits(policy, None, overrides, in_training)
        try:
            reply = await self._retried(
                lambda: policy.engine.chat(shown.messages, shown.tools, params, session=self.id)
            )
        except ContextExceeded as error:
            raise self._end(StopReason.CONTEXT_OVERFLOW, error.problem) from error
        if in_training and reply.usage is None and self._limits.max_tokens_per_episode is not None:
            raise EngineError(
                f"The engine '{policy.engine.name}' does not say how many tokens it sampled, so that "
                "max_tokens_per_episode cannot be kept.",
                "Remove `rollout.max_tokens_per_episode`; `rollout.max_steps` and `sampling.max_tokens` are kept.",
            )
        action = self._reply_action(params, reply)
        if in_training:
            self._open_step(thread, shown, action, continued=False)
        return action

    def record(self, action: Action, result: StepResult) -> None:
        for step in reversed(self._steps):
            if step.action is action:
                step.result = replace(result, reward=finite_reward(result.reward, "the flow"))
                return
        raise ValueError("record() was given an action that generate() did not return in this episode.")

    def count(self, counters: Mapping[str, float]) -> None:
        self.counters.update(counters)

    def steps(self, stop_reason: StopReason, bonus: float | None) -> tuple[Step, ...]:
        """The finished steps; ``bonus`` is added to the last one's reward."""
        finished = [self._finish(index, step) for index, step in enumerate(self._steps)]
        if not finished:
            return ()
        last = finished[-1]
        if bonus is not None:
            last = replace(last, reward=(last.reward or 0.0) + bonus)
        if stop_reason.is_truncation and not last.terminated:
            last = replace(last, truncated=True, next_observation=self._rendered(last.next_observation))
        elif stop_reason in (StopReason.COMPLETED, StopReason.TERMINATED):
            last = replace(last, terminated=True, truncated=False)
        return (*finished[:-1], last)

    @property
    def ended_by_env(self) -> StopReason | None:
        """How the environment ended the episode, judging by the last step."""
        result = self._steps[-1].result if self._steps else None
        if result is None:
            return None
        if result.terminated:
            return StopReason.TERMINATED
        return StopReason.TRUNCATED if result.truncated else None

    # ------------------------------------------------------------------ one turn

    def _within_limits(
        self, policy: Policy | ChatPolicy, n_prompt: int | None, overrides: Mapping[str, Any], in_training: bool
    ) -> SamplingParams:
        """Sampling parameters that keep every limit, or ``EpisodeOver``; checked before the engine is called.

        Where the length of the prompt is unknown, the context is the service's to check.
        """
        limits = self._limits
        params = replace(policy.sampling, **overrides) if overrides else policy.sampling
        if in_training and len(self._steps) >= limits.max_steps:
            raise self._end(StopReason.MAX_STEPS, f"{limits.max_steps} steps were taken")
        context = _least(limits.max_context, policy.engine.capabilities.max_context)
        room = None if context is None or n_prompt is None else context - n_prompt
        if room is not None and room < limits.min_tokens_per_step:
            detail = f"the prompt has {n_prompt} tokens and the context {context}"
            raise self._end(StopReason.CONTEXT_OVERFLOW, detail)
        budget = None
        if in_training and limits.max_tokens_per_episode is not None:
            budget = limits.max_tokens_per_episode - self._n_sampled
            if budget < limits.min_tokens_per_step:
                raise self._end(StopReason.TOKEN_BUDGET, f"{self._n_sampled} tokens were sampled")
        turn, self._n_calls = self._n_calls, self._n_calls + 1
        seed = params.seed if params.seed is not None else self._seeds(turn)
        longest = _least(params.max_tokens, room, budget)
        return replace(params, max_tokens=longest or params.max_tokens, seed=seed)

    async def _retried(self, ask: Callable[[], Awaitable[R]]) -> R:
        """The engine's answer, asked for again after a fault as often as the limits allow."""
        delay = self._limits.retry_delay_s
        for attempt in range(self._limits.engine_retries + 1):
            try:
                return await ask()
            except ContextExceeded:
                raise  # a limit, and no fault of the engine
            except EngineError as error:
                self.counters["engine/faults"] += 1
                if error.final or attempt == self._limits.engine_retries:
                    raise
                await asyncio.sleep(delay)
                delay *= 2
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _sample_once(
        self,
        engine: InferenceEngine,
        prompt_ids: TokenArray,
        params: SamplingParams,
        session: str,
        keep: Callable[[Generation], object],
    ) -> Generation:
        call = asyncio.ensure_future(engine.generate(prompt_ids, params, session=session))
        try:
            return await asyncio.shield(call)
        except asyncio.CancelledError:
            # A deadline or Ctrl-C: stop the engine and keep what it sampled so far as a step marked aborted.
            try:
                if await self._abort(engine, session):
                    await asyncio.wait({call}, timeout=ABORT_GRACE_S)
            finally:
                call.cancel()
            if call.done() and not call.cancelled() and call.exception() is None:
                keep(replace(call.result(), finish_reason=FinishReason.ABORT))
            raise

    async def _abort(self, engine: InferenceEngine, session: str) -> bool:
        """Whether the engine took it; one that fails or hangs here must not hold up or undo the cancellation."""
        try:
            async with asyncio.timeout(ABORT_GRACE_S):
                await engine.abort(session)
        except Exception:
            self.counters["engine/abort_failed"] += 1
            return False
        return True

    def _action(
        self, policy: Policy, params: SamplingParams, generation: Generation, shown: Observation
    ) -> tuple[Action, Parsed]:
        if shown.prompt_ids is None:
            raise ValueError("The observation was sampled from before it was rendered.")
        first_call = sum(len(message.get("tool_calls") or ()) for message in shown.messages)
        parsed = policy.renderer.parse(generation.token_ids, shown.prompt_ids, shown.tools, first_call=first_call)
        self.counters["tokens/cached"] += generation.cached_tokens
        self.counters["actions/cut"] += generation.finish_reason is FinishReason.LENGTH
        self.counters["actions/parse_failures"] += len(parsed.failures)
        action = Action(
            token_ids=generation.token_ids,
            logprobs=generation.logprobs,
            text=parsed.text,
            message=parsed.message,
            tool_calls=parsed.tool_calls,
            parse_failures=parsed.failures,
            finish_reason=generation.finish_reason,
            version_spans=generation.version_spans,
            sampling=params.recorded(),
            cached_tokens=generation.cached_tokens,
        )
        return action, parsed

    def _reply_action(self, params: SamplingParams, reply: ChatReply) -> Action:
        self.counters.update(reply.counters)
        self.counters["tokens/cached"] += 0 if reply.usage is None else reply.usage.cached
        self.counters["actions/cut"] += reply.finish_reason is FinishReason.LENGTH
        self.counters["actions/parse_failures"] += len(reply.parse_failures)
        return Action(
            token_ids=token_array([]),
            logprobs=float_array([]),
            text=reply.text,
            message=_copy(reply.message),
            tool_calls=reply.tool_calls,
            parse_failures=reply.parse_failures,
            finish_reason=reply.finish_reason,
            sampling=params.recorded(),
            cached_tokens=0 if reply.usage is None else reply.usage.cached,
            trainable=False,
            usage=reply.usage,
        )

    # ------------------------------------------------------------------ bookkeeping

    def _open_step(self, thread: str, shown: Observation, action: Action, continued: bool) -> None:
        step = _OpenStep(thread, shown, action, continued)
        self._steps.append(step)
        self._last_in_thread[thread] = step
        self._n_sampled += action.n_sampled

    def _end(self, reason: StopReason, detail: str) -> EpisodeOver:
        self.over = EpisodeOver(reason, detail)
        return self.over

    def _answer_previous(self, thread: str, shown: Observation) -> None:
        """What is shown next is what the thread's previous step led to."""
        previous = self._last_in_thread.get(thread)
        if previous is not None and previous.next_observation is None:
            previous.next_observation = shown

    def _rendered(self, observation: Observation | None) -> Observation | None:
        """The observation after a truncated episode, rendered so that a critic can value it."""
        if observation is None or observation.prompt_ids is not None:
            return observation
        tracker = self._trackers.get(("policy", self._steps[-1].thread))
        if tracker is None:
            return observation
        return replace(observation, prompt_ids=tracker.render(observation).prompt_ids)

    def _finish(self, index: int, step: _OpenStep) -> Step:
        result = step.result or StepResult(None)
        following = step.next_observation or result.observation
        return Step(
            index=index,
            observation=step.observation,
            action=step.action,
            feedback=_feedback(step, following),
            reward=result.reward,
            terminated=result.terminated,
            truncated=result.truncated,
            next_observation=following,
            continued=step.continued,
            info=result.info,
        )


def _feedback(step: _OpenStep, following: Observation | None) -> tuple[Message, ...]:
    """What the environment answered: the new messages where the context was appended to, else all that is shown."""
    if following is None:
        return ()
    before = (*step.observation.messages, step.action.message)
    appended = following.messages[: len(before)] == before
    return following.messages[len(before) :] if appended else following.messages


def _copy(part: Any) -> Any:
    """A message with all that it nests, down to its leaves."""
    if isinstance(part, dict):
        return {key: _copy(value) for key, value in part.items()}
    return [_copy(value) for value in part] if isinstance(part, list) else part


def _least(*limits: int | None) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)
