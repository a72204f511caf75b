"""Messages to prompt tokens, sampled tokens to a message, and the exact continuation from one turn to the next.

``renderers`` does this for the model families it knows; any other model goes through its tokenizer's own chat
template with a *proved* delta. Sampled tokens are never rebuilt from text here: either the next prompt starts with
them, or it is a new row.
"""

from agentr1_core.render.choose import create_chat_renderer
from agentr1_core.render.contract import ChatRenderer, Parsed
from agentr1_core.render.family import FamilyRenderer
from agentr1_core.render.template import TemplateRenderer
from agentr1_core.render.tracker import ContextTracker, Rendered

__all__ = [
    "ChatRenderer",
    "ContextTracker",
    "FamilyRenderer",
    "Parsed",
    "Rendered",
    "TemplateRenderer",
    "create_chat_renderer",
]
