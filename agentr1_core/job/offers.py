"""Look up what a run file names and build it from the settings beside the name.

The job builder calls these functions; every error carries the key of the run file it is about.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from agentr1_core.chat_engine import ChatEngine
from agentr1_core.config.explain import explain, nearest_keys
from agentr1_core.errors import AgentR1Error, ConfigError, PluginError
from agentr1_core.plugins.discovery import extra_named, extras

if TYPE_CHECKING:
    from agentr1_core.plugins import PluginManager


def find(plugins: PluginManager, kind: str, name: str, key: str) -> Any:
    """The class or object a run file names under ``key``.

    Raises:
        PluginError: Nothing of that name is on offer, or it cannot be imported.
    """
    try:
        return plugins.get(kind, name)
    except PluginError as error:
        near_is_known = error.mend is not None and error.mend.startswith("Did you mean")
        mend = error.mend if near_is_known else _installable(name) or error.mend
        raise PluginError(f"`{key}`: {error.problem}", mend) from error


def _installable(name: str) -> str | None:
    """The mend for a misspelt name of something that an extra of agentr1 would bring."""
    near = difflib.get_close_matches(name, extras(), n=1, cutoff=0.75)
    if not near or near[0] == name:
        return None
    return f"Did you mean '{near[0]}'? Install it: {extra_named(near[0])}"


def check_settings(offer: Any, settings: Mapping[str, Any], key: str) -> None:
    """Refuse settings that the ``Settings`` model of an engine, backend or estimator does not take."""
    model = getattr(offer, "Settings", None)
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        return
    try:
        model(**settings)
    except ValidationError as error:
        raise explain(error, model, "The run file", key) from error


def accepts(offer: Any, parameter: str) -> bool:
    """Whether a class or function takes an argument of this name."""
    parameters = inspect.signature(offer).parameters
    return parameter in parameters or any(each.kind is each.VAR_KEYWORD for each in parameters.values())


def check_arguments(
    offer: Any,
    settings: Mapping[str, Any],
    key: str,
    *,
    reserved: frozenset[str] = frozenset(),
    by_rows: frozenset[str] = frozenset(),
) -> None:
    """Refuse settings that are no arguments of an environment, flow, tool or context, and miss none it needs.

    Args:
        offer: The class.
        settings: What the run file gives.
        key: Where in the run file.
        reserved: Arguments that the job builder gives, so that the run file may not.
        by_rows: Arguments that every row of the data gives.
    """
    parameters = inspect.signature(offer).parameters.values()
    named = [each for each in parameters if each.kind in (each.KEYWORD_ONLY, each.POSITIONAL_OR_KEYWORD)]
    known = [each.name for each in named if each.name not in reserved]
    if not any(each.kind is each.VAR_KEYWORD for each in parameters):
        for setting in settings:
            if setting not in known:
                raise ConfigError(
                    f"`{key}.{setting}`: {offer.__name__} has no setting '{setting}'.", nearest_keys(setting, known)
                )
    given = {*settings, *reserved, *by_rows}
    missing = [each.name for each in named if each.default is each.empty and each.name not in given]
    if missing:
        raise ConfigError(f"`{key}`: {offer.__name__} needs {', '.join(missing)}.", f"Set `{key}.{missing[0]}`.")


def build(offer: Any, settings: Mapping[str, Any], key: str) -> Any:
    """An instance of a class from its settings; what its constructor refuses is told with the key."""
    check_arguments(offer, settings, key)
    try:
        return offer(**settings)
    except AgentR1Error:
        raise
    except (TypeError, ValueError) as error:
        raise ConfigError(f"`{key}`: {offer.__name__} refuses its settings: {error}", f"Mend `{key}`.") from error


def is_chat_engine(engine: Any) -> bool:
    """Whether a class answers in text, without token ids."""
    return isinstance(engine, type) and issubclass(engine, ChatEngine)


def refuse_chat_engine(engine: Any, name: str) -> None:
    """Raise ``PluginError`` for an engine whose answers cannot be trained."""
    if is_chat_engine(engine):
        raise PluginError(
            f"`engine.name`: '{name}' answers in text, without the token ids that training needs.",
            "Train with an engine that gives them, such as `transformers` or `vllm`; use this one with `agentr1 eval`.",
        )


def build_engine(engine: Any, given: Mapping[str, Any], *, model: str, run_dir: Path) -> Any:
    """An engine with weights of its own.

    Args:
        engine: The class.
        given: Its settings from the run file.
        model: Folder or hub id, where ``given`` names none.
        run_dir: For an engine whose ``Settings`` have a field of that name: it puts its log there.
    """
    settings = {"model": model, **given}
    schema = getattr(engine, "Settings", None)
    if schema is None:
        return engine(**settings)
    if "run_dir" in getattr(schema, "model_fields", {}):
        settings.setdefault("run_dir", run_dir)
    return engine(schema(**settings))
