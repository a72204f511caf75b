"""Environments behind an OpenEnv server. Run files name it ``openenv``.

Each episode has its own session with the server, which must already run at ``base_url``; nothing is downloaded or
started, and nothing else is contacted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from agentr1_core.errors import ConfigError, EnvError
from agentr1_core.task import Task
from agentr1_recipes.bridges.bridge import Bridge, Reply, library


class OpenEnvEnv(Bridge):
    """One session.

    Args:
        base_url: Address of the server.
        action_field: Field of the server's action that takes the agent's answer; when unset, the answer itself must be
            the action as a JSON object.
        observation_field: Field of the server's observation that is shown; the whole observation as JSON when unset.
        reset: Further arguments of the server's reset.
        timeout_s: Seconds to connect, and for each answer of the server.
        invalid_reward: Reward of a turn whose answer is no JSON object where one is needed.
        system_prompt, max_turns, seed: See ``Bridge``.
    """

    def __init__(
        self,
        base_url: str,
        *,
        action_field: str | None = None,
        observation_field: str | None = None,
        reset: Mapping[str, Any] | None = None,
        timeout_s: float = 60.0,
        invalid_reward: float = 0.0,
        system_prompt: str | None = None,
        max_turns: int | None = 100,
        seed: int = 0,
    ) -> None:
        super().__init__(system_prompt=system_prompt, max_turns=max_turns, seed=seed)
        if not base_url.startswith(("http://", "https://", "ws://", "wss://")):
            raise ConfigError(f"`env.base_url` is '{base_url}'.", "Give the address of a running server.")
        self.base_url = base_url
        self.action_field = action_field
        self.observation_field = observation_field
        self.reset_arguments = dict(reset or {})
        self.timeout_s = timeout_s
        self.invalid_reward = invalid_reward
        self._client: Any = None

    def begin(self, task: Task, seed: int) -> str:
        client = library("openenv", "openenv").GenericEnvClient
        self.end()
        self._client = client(
            base_url=self.base_url, connect_timeout_s=self.timeout_s, message_timeout_s=self.timeout_s
        ).sync()
        try:
            self._client.connect()
            result = self._client.reset(seed=seed, **self.reset_arguments)
        except (OSError, RuntimeError, TimeoutError) as error:
            raise EnvError(
                f"The OpenEnv server {self.base_url} cannot be used: {type(error).__name__}: {error}",
                "Start it, or correct `env.base_url`.",
            ) from error
        return self._show(result.observation)

    def play(self, answer: str) -> Reply:
        if self.action_field is not None:
            action: Any = {self.action_field: answer}
        else:
            try:
                action = json.loads(answer)
            except ValueError:
                action = None
            if not isinstance(action, dict):
                return Reply("Answer with the action as one JSON object.", self.invalid_reward)
        result = self._client.step(action)
        reward = None if result.reward is None else float(result.reward)
        return Reply(self._show(result.observation), reward, bool(result.done))

    def _show(self, observation: Mapping[str, Any]) -> str:
        if self.observation_field is None:
            return json.dumps(observation, ensure_ascii=False)
        if self.observation_field not in observation:
            raise EnvError(
                f"The observation of {self.base_url} has no field '{self.observation_field}'.",
                f"Set `env.observation_field` to one of: {', '.join(observation)}.",
            )
        return str(observation[self.observation_field])

    def end(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()
