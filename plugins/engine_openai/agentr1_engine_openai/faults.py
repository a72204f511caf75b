"""What a service's refusal means: which ones pass, which end the episode, and what the reader can do.

``OpenAIEngine`` calls these functions with responses that are no success. Nothing here waits or asks again.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from agentr1_core.chat_engine import ContextExceeded
from agentr1_core.errors import EngineError
from agentr1_engine_openai.settings import OpenAISettings

#: Statuses after which the same request may succeed.
PASSING = frozenset({408, 409, 425, 429})
_TOO_LONG = re.compile(r"context.?(length|size|window)|maximum context|context_length_exceeded", re.IGNORECASE)


class ServiceError(EngineError):
    """The service failed or refused, and was asked again as often as it made sense."""

    final = True


def may_pass(response: httpx.Response) -> bool:
    """Whether asking again may help: the service is busy or failing. A spent quota stays spent."""
    if _code(response) in ("insufficient_quota", "billing_hard_limit_reached"):
        return False
    return response.status_code in PASSING or response.status_code >= 500


def retry_after_s(response: httpx.Response) -> float | None:
    """Seconds that the service asks to wait, from the ``Retry-After`` header; ``None`` where it does not say."""
    given = response.headers.get("retry-after", "").strip()
    try:
        return max(0.0, float(given))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(given).timestamp() - time.time())
    except ValueError:
        return None


def refusal(response: httpx.Response, settings: OpenAISettings, offers: Sequence[str]) -> EngineError:
    """The error for a response that is no success.

    Args:
        response: Read to its end.
        settings: Name the service and the model.
        offers: Models that the service lists; empty where that is not known.
    """
    status, said = response.status_code, told(response)
    where = f"{settings.base_url}, model '{settings.model}'"
    if status in (401, 403):
        variable = settings.key_variable
        mend = f"Put a key that may use it into {variable}." if variable else "Name its variable: `engine.api_key_env`."
        return ServiceError(f"{where}: access is refused (HTTP {status}): {said}", mend)
    if status == 404:
        mend = "Check `engine.model`, and `engine.base_url`, which usually ends in /v1."
        if offers:
            mend = f"Set `engine.model` to one of: {', '.join(offers[:12])}."
        return ServiceError(f"{where}: not found (HTTP 404): {said}", mend)
    if status in (400, 413, 422) and (_TOO_LONG.search(said) or _TOO_LONG.search(str(_code(response)))):
        return ContextExceeded(f"{where}: {said}")
    if status in PASSING or status >= 500:
        return ServiceError(f"{where}: the service is busy or failing (HTTP {status}): {said}", "Try again later.")
    return ServiceError(
        f"{where}: the request is refused (HTTP {status}): {said}",
        "A parameter that it does not take can be left out with `engine.omit`.",
    )


def told(response: httpx.Response) -> str:
    """What the service says of its refusal, in one line."""
    error = _error(response)
    message = error.get("message") if isinstance(error, Mapping) else error
    text = message if isinstance(message, str) and message else response.text
    return " ".join(text.split())[:400] or "(it says nothing)"


def _error(response: httpx.Response) -> Any:
    try:
        body = response.json()
    except ValueError:
        return None
    if not isinstance(body, Mapping):
        return None
    return body.get("error") or body.get("message") or body.get("detail")


def _code(response: httpx.Response) -> Any:
    error = _error(response)
    return (error.get("code") or error.get("type")) if isinstance(error, Mapping) else None
