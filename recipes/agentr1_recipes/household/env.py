"""The household game as an environment; run files name it ``household``."""

from __future__ import annotations

from agentr1_core.env import AgentEnv, StepResult
from agentr1_core.mdp import Action, Observation
from agentr1_core.task import Task
from agentr1_recipes.household.game import HouseholdGame
from agentr1_recipes.household.house import house_of
from agentr1_recipes.textgame.env import SYSTEM_PROMPT, GameRules, TextGameEnv


class HouseholdEnv(AgentEnv):
    """Plays the house of a row: its columns ``layout``, ``placement``, ``task_type``, ``receptacles``, ``objects``.

    Args:
        max_turns, system_prompt, show_commands, history, reward, turn_reward, invalid_reward: See ``GameRules``.
    """

    def __init__(
        self,
        *,
        max_turns: int = 30,
        system_prompt: str = SYSTEM_PROMPT,
        show_commands: bool = True,
        history: int | None = None,
        reward: float = 1.0,
        turn_reward: float = 0.0,
        invalid_reward: float = 0.0,
    ) -> None:
        self.rules = GameRules(
            max_turns=max_turns,
            system_prompt=system_prompt,
            show_commands=show_commands,
            history=history,
            reward=reward,
            turn_reward=turn_reward,
            invalid_reward=invalid_reward,
        )
        self._playing: TextGameEnv | None = None

    @property
    def counters(self) -> dict[str, float]:
        return {} if self._playing is None else dict(self._playing.counters)

    async def reset(self, task: Task) -> Observation:
        house = house_of(task)
        self._playing = TextGameEnv(HouseholdGame(house), self.rules, house.task_type)
        return await self._playing.reset(task)

    async def step(self, action: Action) -> StepResult:
        if self._playing is None:
            raise RuntimeError("step() was called before reset().")
        return await self._playing.step(action)

    async def close(self) -> None:
        if self._playing is not None:
            await self._playing.close()
