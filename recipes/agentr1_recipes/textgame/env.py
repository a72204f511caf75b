"""A text game as an environment: what the model sees, how its commands are read, and what is rewarded.

The model sees either the whole conversation, to which every turn is appended, or one message that is written anew each
turn and holds the task, the last commands and what is seen now.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from agentr1_core.env import AgentEnv, StepResult
from agentr1_core.errors import ConfigError
from agentr1_core.mdp import Action, Message, Observation, token_array
from agentr1_core.task import Task
from agentr1_recipes.textgame.command import read_command
from agentr1_recipes.textgame.game import TextGame, View

#: What the games answer to a command that makes no sense, and this environment to an answer without a command.
NOTHING = "Nothing happens."
SYSTEM_PROMPT = (
    "You are in a house and have a task. Each turn you read what you see and say one command. You may think first; "
    "then say the command alone as <action>command</action>."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GameRules:
    """How a game is shown and rewarded; the settings that text games have in common.

    Raises:
        ConfigError: A number is out of range.
    """

    #: Turns until the episode is truncated.
    max_turns: int = 50
    #: Shown first; an empty text shows none.
    system_prompt: str = SYSTEM_PROMPT
    #: Whether the commands that do something here are listed.
    show_commands: bool = True
    #: With a number the prompt is written anew each turn and tells so many earlier commands; ``None`` appends.
    history: int | None = None
    #: Reward of solving the task, of each turn, and of each answer that is no command that does something here.
    reward: float = 1.0
    turn_reward: float = 0.0
    invalid_reward: float = 0.0

    def __post_init__(self) -> None:
        if self.max_turns < 1:
            raise ConfigError(f"`env.max_turns` is {self.max_turns}.", "Give at least one turn.")
        if self.history is not None and self.history < 0:
            raise ConfigError(f"`env.history` is {self.history}.", "Give 0 or more, or leave it out to append.")


class TextGameEnv(AgentEnv):
    """Plays one game.

    Args:
        game: The game; closed with the environment.
        rules: How it is shown and rewarded.
        task_type: Of which kind its task is; counted and told with every step.
    """

    def __init__(self, game: TextGame, rules: GameRules, task_type: str = "task") -> None:
        self.game = game
        self.rules = rules
        self.task_type = task_type
        self._counters: Counter[str] = Counter({"commands/missing": 0, "commands/useless": 0})
        self._head: tuple[Message, ...] = ()
        if rules.system_prompt:
            self._head = ({"role": "system", "content": rules.system_prompt},)
        self._recent: deque[str] = deque(maxlen=rules.history or 0)

    @property
    def counters(self) -> Mapping[str, float]:
        """Answers without a command, commands that do nothing, and games and wins of the task's type."""
        return dict(self._counters)

    @property
    def commands(self) -> tuple[str, ...]:
        """The commands that do something now."""
        return self._view.commands

    async def reset(self, task: Task) -> Observation:
        self._turns = 0
        self._view = await self.game.begin()
        self._task = self._view.text.strip().rsplit("\n", 1)[-1]
        self._counters[f"games/{self.task_type}"] = 1
        self._counters[f"won/{self.task_type}"] = 0
        self._messages = (*self._head, _user(self._shown(self._view)))
        return self._observation(first=True)

    async def step(self, action: Action) -> StepResult:
        self._turns += 1
        before = self._view
        command = read_command(action.text)
        useful = command in before.commands
        if command is None:
            self._counters["commands/missing"] += 1
            self._view = View(NOTHING, before.commands, before.state)
        else:
            self._counters["commands/useless"] += not useful
            self._view = await self.game.do(command)
        view = self._view
        self._recent.append(f"> {command or '(no command)'}\n{view.text}")
        self._messages = (*self._messages, action.message, _user(self._shown(view)))
        reward = self.rules.turn_reward + (0.0 if useful else self.rules.invalid_reward)
        if view.won:
            reward += self.rules.reward
            self._counters[f"won/{self.task_type}"] = 1
        info = {"success": view.won, "task_type": self.task_type, "command": command, "useful": useful}
        truncated = not view.won and self._turns >= self.rules.max_turns
        return StepResult(self._observation(), reward, terminated=view.won, truncated=truncated, info=info)

    async def close(self) -> None:
        await self.game.close()

    def _observation(self, first: bool = False) -> Observation:
        messages = self._messages
        if self.rules.history is not None and not first:
            told = list(self._recent)[-self.rules.history :] if self.rules.history else [self._view.text]
            now = self._with_commands("\n".join([self._task, *told]))
            messages = (*self._head, _user(now))
        return Observation(messages, anchor=self._view.state)

    def _shown(self, view: View) -> str:
        return self._with_commands(view.text)

    def _with_commands(self, text: str) -> str:
        if not self.rules.show_commands:
            return text
        return f"{text}\nCommands: {', '.join(self._view.commands)}"


def _user(content: str) -> Message:
    return {"role": "user", "content": content}


def say(command: str) -> Action:
    """A command as the action of a model; its tokens are made up, so it cannot be trained on."""
    message: Message = {"role": "assistant", "content": command}
    return Action(token_array([0]), np.zeros(1, dtype=np.float32), command, message)
