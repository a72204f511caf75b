"""The engine: posts conversations to a chat endpoint, and waits and asks again where that can help."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import httpx

from agentr1_core.chat_engine import ChatEngine, ChatReply
from agentr1_core.engine import EngineCapabilities, Health, SamplingParams
from agentr1_core.errors import EngineError
from agentr1_core.mdp import Message, ToolSpec
from agentr1_core.serving import is_loopback
from agentr1_engine_openai.faults import ServiceError, may_pass, refusal, retry_after_s, told
from agentr1_engine_openai.settings import OpenAISettings
from agentr1_engine_openai.wire import read_reply, request_body

CONNECT_S = 10.0
#: Seconds for the list of models, which is only looked at to find mistakes early.
LIST_S = 30.0


class OpenAIEngine(ChatEngine):
    """Any service with ``/chat/completions``: OpenAI's, vLLM, SGLang, llama.cpp, Ollama and others.

    Args:
        settings: Which service and model.
    """

    name = "openai"
    Settings = OpenAISettings

    def __init__(self, settings: OpenAISettings) -> None:
        self.settings = settings
        self._http: httpx.AsyncClient | None = None
        self._closed = False
        self._offers: tuple[str, ...] = ()
        self._pending: set[asyncio.Task[Any]] = set()

    @property
    def capabilities(self) -> EngineCapabilities:
        return EngineCapabilities(token_ids=False, logprobs=False, seed="seed" not in self.settings.omit)

    async def start(self) -> None:
        """Connect, and ask which models there are.

        Raises:
            ConfigError: The key is wanted and not set.
            EngineError: The service cannot be reached, or refuses the key.
        """
        if self._closed:
            raise ServiceError("The engine is closed.", "Make a new one.")
        if self._http is not None:
            return
        settings = self.settings
        key = settings.api_key()
        http = httpx.AsyncClient(
            headers={**settings.headers, **({} if key is None else {"Authorization": f"Bearer {key}"})},
            timeout=httpx.Timeout(settings.request_timeout_s, connect=CONNECT_S, pool=None),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=None),
            trust_env=not is_loopback(settings.base_url),  # a proxy cannot reach this machine's loopback interface
        )
        try:
            self._offers = await self._list_models(http)
        except BaseException:
            await http.aclose()
            raise
        self._http = http

    async def chat(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        sampling: SamplingParams,
        *,
        session: str | None = None,
    ) -> ChatReply:
        if self._http is None:
            raise ServiceError("The engine is closed." if self._closed else "The engine was not started.")
        if not messages:
            raise ServiceError("A conversation without messages cannot be answered.")
        body = request_body(self.settings, messages, tools, sampling)
        first_call = sum(len(message.get("tool_calls") or ()) for message in messages)
        work = asyncio.ensure_future(self._answer(self._http, body, first_call))
        self._pending.add(work)
        try:
            return await work
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if self._closed and (caller is None or not caller.cancelling()):
                raise ServiceError("The engine was closed while it waited for an answer.") from None
            raise
        finally:
            self._pending.discard(work)

    async def health(self) -> Health:
        if self._http is None:
            return Health(ready=False, detail="closed" if self._closed else "not started")
        try:
            await self._list_models(self._http)
        except EngineError as error:
            return Health(ready=False, running=len(self._pending), detail=error.problem)
        return Health(ready=True, running=len(self._pending))

    async def close(self) -> None:
        """End what waits and disconnect. Idempotent."""
        self._closed = True
        for work in tuple(self._pending):
            work.cancel()
        http, self._http = self._http, None
        if http is not None:
            await http.aclose()

    async def _answer(self, http: httpx.AsyncClient, body: dict[str, Any], first_call: int) -> ChatReply:
        """The reply to a request, asked for until it comes, cannot come, or has taken too long."""
        settings = self.settings
        delay, last = settings.retry_delay_s, "no answer came"
        deadline = asyncio.get_running_loop().time() + settings.give_up_after_s
        try:
            async with asyncio.timeout_at(deadline):
                for attempt in range(settings.retries + 1):
                    wait: float | None = None
                    try:
                        response = await http.post(f"{settings.base_url}/chat/completions", json=body)
                    except httpx.RequestError as error:
                        last = f"{type(error).__name__}: {error}".rstrip(": ")
                    else:
                        if response.is_success:
                            return self._read(response, first_call, attempt)
                        if not may_pass(response):
                            raise refusal(response, settings, self._offers)
                        last = f"HTTP {response.status_code}: {told(response)}"
                        wait = retry_after_s(response)
                    if attempt < settings.retries:
                        # Spread out, so that episodes that were refused together do not come back together.
                        wait = delay * random.uniform(0.5, 1.0) if wait is None else wait
                        if asyncio.get_running_loop().time() + wait > deadline:
                            break
                        await asyncio.sleep(wait)
                        delay = min(2 * delay, settings.max_retry_delay_s)
        except TimeoutError:
            raise self._gave_up(f"within {settings.give_up_after_s:g} s", last) from None
        raise self._gave_up("to 1 request" if attempt == 0 else f"to {attempt + 1} requests", last)

    def _gave_up(self, how: str, last: str) -> ServiceError:
        return ServiceError(
            f"{self.settings.base_url}, model '{self.settings.model}': no answer {how}; the last fault: {last}",
            "Lower `rollout.concurrency`, or raise `engine.retries` and `engine.give_up_after_s`.",
        )

    def _read(self, response: httpx.Response, first_call: int, attempt: int) -> ChatReply:
        try:
            reply = read_reply(response.json(), first_call=first_call)
        except ValueError as error:
            raise ServiceError(
                f"{self.settings.base_url}: the answer is no chat completion: {error}. It begins: "
                f"{' '.join(response.text.split())[:160]}",
                "Check `engine.base_url`: it must be of an OpenAI-compatible service, and usually ends in /v1.",
            ) from error
        return replace(reply, counters={**reply.counters, "engine/retries": attempt}) if attempt else reply

    async def _list_models(self, http: httpx.AsyncClient) -> tuple[str, ...]:
        """Names of the models the service lists; none where it keeps no list."""
        settings = self.settings
        try:
            response = await http.get(f"{settings.base_url}/models", timeout=LIST_S)
        except httpx.RequestError as error:
            raise ServiceError(
                f"{settings.base_url} cannot be reached: {type(error).__name__}: {error}".rstrip(": "),
                "Check `engine.base_url`, and that the service runs.",
            ) from error
        if response.status_code in (401, 403):
            raise refusal(response, settings, ())
        try:
            listed = response.json()["data"] if response.is_success else []
            return tuple(str(model["id"]) for model in listed)
        except (ValueError, KeyError, TypeError):
            return ()
