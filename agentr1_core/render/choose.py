"""Chooses the renderer that fits a tokenizer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentr1_core.errors import ConfigError
from agentr1_core.render.contract import ChatRenderer
from agentr1_core.render.family import FamilyRenderer
from agentr1_core.render.template import TemplateRenderer
from agentr1_core.tool_format import HermesFormat, ToolFormat


def create_chat_renderer(
    tokenizer: Any,
    *,
    name: str = "auto",
    tool_format: ToolFormat | None = None,
    template_kwargs: Mapping[str, Any] | None = None,
) -> ChatRenderer:
    """The renderer for a tokenizer.

    Args:
        tokenizer: A Hugging Face tokenizer.
        name: A family of ``renderers`` (``"qwen3"``, ``"llama-3"``, ...), ``"template"`` for the tokenizer's own chat
            template, or ``"auto"``: the family registered for the tokenizer's ``name_or_path``, else the template.
        tool_format: How tools are called where the template decides; Hermes by default.
        template_kwargs: Passed to the chat template, for example ``{"enable_thinking": False}``.

    Raises:
        ConfigError: The family is unknown or does not fit, or the tokenizer has no chat template.
    """
    import renderers  # half a second: only programs that render pay for it
    from renderers.base import MODEL_RENDERER_MAP

    kwargs = dict(template_kwargs or {})
    family = MODEL_RENDERER_MAP.get(getattr(tokenizer, "name_or_path", "")) if name == "auto" else name
    if family is None or family in ("template", "default"):
        return TemplateRenderer(tokenizer, tool_format or HermesFormat(), kwargs)
    try:
        config = renderers.config_from_name(family)
    except (KeyError, ValueError) as error:
        raise ConfigError(
            f"Unknown renderer '{family}'.", "Use 'auto', 'template' or a family that the renderers package lists."
        ) from error
    try:
        renderer = renderers.create_renderer(tokenizer, config, chat_template_kwargs=kwargs or None)
    except (AssertionError, TypeError, ValueError) as error:  # how renderers reports a token or argument it misses
        raise ConfigError(
            f"The renderer '{family}' does not fit the tokenizer '{getattr(tokenizer, 'name_or_path', '')}': {error}",
            "Use the renderer of the tokenizer's own family, or 'template'.",
        ) from error
    return FamilyRenderer(renderer, tokenizer)
