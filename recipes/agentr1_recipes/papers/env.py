"""Searching for papers with two tools, ``search`` and ``expand``; what the model sees is built anew every step.

The context never grows: each observation holds the question, one line for each call so far, and the best papers found,
those not yet expanded apart from those that were. The reward comes step by step, for what the calls newly found.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentr1_core.env import AgentEnv, StepResult
from agentr1_core.errors import ConfigError, DataError, EnvError
from agentr1_core.mdp import Action, Message, Observation, ToolCall
from agentr1_core.task import Task
from agentr1_core.threads import call_in_thread
from agentr1_core.tool import ToolBox, ToolContext, ToolError, ToolOutcome, ToolResponse, ToolResult, call_tool, tool
from agentr1_recipes.papers.corpus import Corpus, Paper
from agentr1_recipes.papers.loader import open_corpus
from agentr1_recipes.papers.pool import Found, Pool
from agentr1_recipes.papers.reward import CallOutcome, call_reward, retrieval_metrics
from agentr1_recipes.papers.selector import GoldSelector, Selector, make_selector

SYSTEM: Message = {
    "role": "system",
    "content": "Find the papers that answer the question. Search by keywords, and expand papers to see what they cite. "
    "You may make several calls at once. Answer without a call when there is nothing more to find.",
}


@tool
def search(query: str, ctx: ToolContext) -> ToolResponse:
    """Find papers by keywords in their titles and abstracts.

    Args:
        query: The keywords.
    """
    episode: Episode = ctx.state["episode"]
    found = episode.corpus.search(query, episode.search_size, episode.hidden)
    return ToolResponse(f"{len(found)} found", info={"papers": found})


@tool
def expand(paper_id: str, ctx: ToolContext) -> ToolResponse:
    """List the papers that a paper cites.

    Args:
        paper_id: The id of a paper that was found, as it stands in brackets.
    """
    episode: Episode = ctx.state["episode"]
    if episode.pool.get(paper_id) is None:
        raise ToolError(f"'{paper_id}' was not found before.")
    found = episode.corpus.references(paper_id, episode.hidden)
    return ToolResponse(f"{len(found)} found", info={"papers": found})


TOOLS = ToolBox([search, expand])
SPECS = tuple(item.spec for item in TOOLS.by_name.values())


@dataclass(slots=True)
class Episode:
    """The state of one episode."""

    corpus: Corpus
    question: str
    answers: frozenset[str]
    hidden: frozenset[str]
    search_size: int
    pool: Pool
    #: One line for each call, in order, as the model sees them.
    history: list[str]
    queries: set[str]


@dataclass(frozen=True, slots=True)
class CallResult:
    """One call, what became of it, and the papers it newly found with their scores."""

    tool: str
    outcome: CallOutcome
    line: str
    new: tuple[Found, ...] = ()


class PaperSearchEnv(AgentEnv):
    """Find the papers that answer ``task["question"]``, after PaperScout (arXiv 2601.10029).

    ``task["answers"]`` are the ids of the right papers, ``task["hidden"]`` those that do not exist for this task, and
    ``task["corpus"]`` the folder of the corpus; the invented corpus where it is missing.

    Args:
        max_steps: Steps until the episode is truncated.
        max_parallel: Calls of one step that are run; the rest is left out and counted.
        search_size: Papers that one search returns at most.
        pool_size: Papers that the model sees at most.
        selector: Ranks the pool: ``lexical``, or a class as ``package.module:Class`` (see ``selector.py``).
        judge: Scores what a call newly found: ``gold``, ``selector`` for the one above, or a class likewise.
        success_recall: Recall from which an episode counts as a success.
        corpus: Folder of the corpus for tasks that name none.
    """

    def __init__(
        self,
        max_steps: int = 5,
        max_parallel: int = 5,
        search_size: int = 20,
        pool_size: int = 20,
        selector: str = "lexical",
        judge: str = "gold",
        success_recall: float = 0.5,
        corpus: str | None = None,
    ) -> None:
        for name, value in (("max_steps", max_steps), ("max_parallel", max_parallel), ("search_size", search_size)):
            if value < 1:
                raise ConfigError(f"`{name}` of paper search is {value}.", "Give at least 1.")
        if pool_size < 2:
            raise ConfigError(f"`pool_size` of paper search is {pool_size}.", "Give at least 2, one for each half.")
        self.max_steps = max_steps
        self.max_parallel = max_parallel
        self.search_size = search_size
        self.pool_size = pool_size
        self.selector_name = selector
        self.judge_name = judge
        self.success_recall = success_recall
        self.corpus = corpus
        self._counters: Counter[str] = Counter()

    @property
    def counters(self) -> Mapping[str, float]:
        return self._counters

    async def reset(self, task: Task) -> Observation:
        if not task.get("question"):
            raise DataError(f"{task.where}: column 'question' is missing or empty.", "Paper search needs it.")
        corpus = await call_in_thread(open_corpus, task.get("corpus") or self.corpus)
        self._episode = Episode(
            corpus=corpus,
            question=task["question"],
            answers=frozenset(task.get("answers") or ()),
            hidden=frozenset(task.get("hidden") or ()),
            search_size=self.search_size,
            pool=Pool(),
            history=[],
            queries=set(),
        )
        self._ctx = ToolContext(task=task, state={"episode": self._episode})
        self._steps = 0
        self._selector = await call_in_thread(make_selector, self.selector_name, corpus, "selector")
        self._judge = await call_in_thread(self._make_judge, task)
        return self._observe()

    async def step(self, action: Action) -> StepResult:
        self._steps += 1
        if not action.tool_calls and not action.parse_failures:
            return StepResult(None, 0.0, terminated=True, info=self._info())
        reward = 0.0
        run, left_out = action.tool_calls[: self.max_parallel], action.tool_calls[self.max_parallel :]
        # All calls see the pool as it was shown; what they found is taken in one after the other, in their order.
        answers = await asyncio.gather(
            *(call_tool(TOOLS.by_name, call.name, call.arguments, self._ctx, timeout_s=60.0) for call in run)
        )
        for call, answer in zip(run, answers, strict=True):
            # In a thread, since a selector may be a model.
            reward += await call_in_thread(self._take_in_and_judge, call, answer)
        for call in left_out:
            self._count(CallResult(call.name, CallOutcome.LEFT_OUT, f"{_shown(call)}: left out"), ())
        for failure in action.parse_failures:
            reward += self._count(CallResult("", CallOutcome.INVALID, failure.explain()), ())
        return StepResult(self._observe(), reward, truncated=self._steps >= self.max_steps, info=self._info())

    def _take_in_and_judge(self, call: ToolCall, answer: ToolResult) -> float:
        result = self._take_in(call, answer)
        scores = [self._judge.score(self._episode.question, found.paper) for found in result.new]
        return self._count(result, scores)

    def _take_in(self, call: ToolCall, answer: ToolResult) -> CallResult:
        """What a call came to; the papers that it newly found go into the pool."""
        episode = self._episode
        said = _shown(call)
        if answer.outcome is ToolOutcome.FAILED:
            return CallResult(call.name, CallOutcome.UNKNOWN, f"{said}: not found before")
        if answer.outcome in (ToolOutcome.UNKNOWN_TOOL, ToolOutcome.BAD_ARGUMENTS):
            return CallResult(call.name, CallOutcome.INVALID, f"{said}: invalid")
        if answer.outcome is not ToolOutcome.OK:
            raise EnvError(answer.response.text)  # our own fault, which says nothing about the policy
        papers: list[Paper] = answer.response.info["papers"]
        if call.name == "search":
            key = " ".join(call.arguments["query"].lower().split())
            if key in episode.queries:
                return CallResult(call.name, CallOutcome.REPEATED, f"{said}: repeated")
            episode.queries.add(key)
        else:
            expanded = episode.pool.get(call.arguments["paper_id"])
            if expanded is None or expanded.expanded:
                return CallResult(call.name, CallOutcome.REPEATED, f"{said}: expanded before")
            expanded.expanded = True
        new = episode.pool.new(papers)
        for paper in new:
            episode.pool.add(paper, self._selector.score(episode.question, paper))
        found = tuple(found for paper in new if (found := episode.pool.get(paper.id)) is not None)
        outcome = CallOutcome.NEW if found else CallOutcome.NOTHING_NEW
        return CallResult(call.name, outcome, f"{said}: {len(found)} new", found)

    def _count(self, result: CallResult, scores: Sequence[float]) -> float:
        self._episode.history.append(result.line)
        self._counters[f"calls/{result.outcome.value}"] += 1
        return call_reward(result.tool, result.outcome, scores)

    def _make_judge(self, task: Task) -> Selector:
        if self.judge_name == "selector":
            return self._selector
        if self.judge_name != "gold":
            return make_selector(self.judge_name, self._episode.corpus, "judge")
        if not self._episode.answers:
            raise ConfigError(
                f"{task.where}: `judge: gold` needs the column 'answers'.", "Give answers, or set `judge: selector`."
            )
        return GoldSelector(self._episode.answers)

    def _info(self) -> dict[str, Any]:
        if not self._episode.answers:
            return {}
        ranked = [found.paper.id for found in self._episode.pool.ranked()]
        metrics = retrieval_metrics(ranked, self._episode.answers)
        return {**metrics, "found": len(ranked), "success": metrics["recall"] >= self.success_recall}

    def _observe(self) -> Observation:
        shown = show(self._episode.question, self._episode.history, self._episode.pool, self.pool_size)
        # Steps that were shown the same are compared, as the model cannot tell them apart.
        return Observation((SYSTEM, shown), SPECS, anchor=str(shown["content"]))


def show(question: str, history: list[str], pool: Pool, pool_size: int) -> Message:
    """All that the model sees of a state beside the system message."""
    fresh, done = pool.halves(pool_size)
    parts = [f"Question: {question}"]
    if history:
        parts.append("\n".join(["Done:", *history]))
    if fresh:
        parts.append("\n".join(["Not expanded:", *map(_line, fresh)]))
    if done:
        parts.append("\n".join(["Expanded:", *map(_line, done)]))
    return {"role": "user", "content": "\n\n".join(parts)}


def _line(found: Found) -> str:
    return f"[{found.paper.id}] {found.score:.2f} {' '.join(found.paper.title.split())}"


def _shown(call: ToolCall) -> str:
    """A call as the history tells it: on one line, and cut when it is long."""
    words = (word for value in call.arguments.values() for word in str(value).split())
    return " ".join([call.name, *words])[:200]
