"""The core's collector inside OpenRLHF's trainer, with any engine plugin in the place of OpenRLHF's own engines.

It owns the event loop, the engine and what is played. Weights come as a folder in the Hugging Face layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentr1_backend_openrlhf.run import Run
from agentr1_core.blocking import BlockingLoop
from agentr1_core.engine import WeightSource
from agentr1_core.episode import Policy
from agentr1_core.flow import BorrowedFlow
from agentr1_core.job.offers import build_engine, find
from agentr1_core.mdp import Trajectory
from agentr1_core.rollout import Play, Rollouts


class Collector:
    """Plays episodes for synchronous callers; opens at the first one.

    Args:
        run: What is played.
        model: What the engine loads at first.
        tokenizer: The model's.
    """

    def __init__(self, run: Run, model: str, tokenizer: Any) -> None:
        kind = find(run.plugins, "engine", run.config.engine.name, "engine.name")
        self._engine = build_engine(kind, run.config.engine.settings, model=model, run_dir=run.path.parent)
        renderer, reward, flow = run.make_renderer(tokenizer), run.make_reward(), run.make_flow()

        def rollouts(training: bool) -> Rollouts:
            return Rollouts(
                flow if training else BorrowedFlow(flow),
                Policy(self._engine, renderer, run.sampling(training)),
                reward=reward,
                limits=run.limits,
                concurrency=run.config.rollout.concurrency,
                seed=run.config.run.seed,
                tools=run.tools if training else None,
            )

        self._train, self._eval = rollouts(True), rollouts(False)
        self._loop: BlockingLoop | None = None

    def play(self, plays: Sequence[Play], *, training: bool) -> list[Trajectory]:
        """Play episodes, in the order given; failed ones are among them."""

        async def work() -> list[Trajectory]:
            await self._open()
            rollouts = self._train if training else self._eval
            found = await rollouts.collect_plays(plays, training=training, may_all_fail=True)
            by_id = {t.id: t for group in found.groups for t in (*group.trajectories, *group.failed)}
            return [by_id[f"{play.group_id}/{play.member}"] for play in plays]

        return self._run(work())

    def take_weights(self, folder: str, version: int) -> None:
        """Give the engine the weights in a folder; it has read them when this returns."""

        async def work() -> None:
            await self._open()
            await self._engine.update_weights(WeightSource("file", path=Path(folder)), version)

        self._run(work())

    def close(self) -> None:
        """Close flow, tools and engine."""
        loop, self._loop = self._loop, None
        if loop is None:
            return
        try:
            loop.run(self._train.close())
        finally:
            loop.close()

    async def _open(self) -> None:
        """Flow, tools and engine are opened here once, for evaluation too."""
        await self._train.start()
        self._engine.require(weight_sync="file")

    def _run(self, work: Any) -> Any:
        if self._loop is None:
            self._loop = BlockingLoop()
        return self._loop.run(work)
