"""Read a run file and its overrides into a ``RunConfig``.

The CLI calls ``load_config`` with a path or a recipe's name. YAML is read strictly: a key given twice is an error,
and ``1e-4`` is a number.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import ValidationError

from agentr1_core.config.explain import explain
from agentr1_core.config.schema import RunConfig
from agentr1_core.errors import ConfigError

if TYPE_CHECKING:
    from agentr1_core.plugins import PluginManager


class _Loader(yaml.SafeLoader):
    """YAML 1.1 as PyYAML reads it, but with the floats of YAML 1.2 and without doubled keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    "while reading a mapping", node.start_mark, f"the key '{key}' is given twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


# PyYAML wants a dot and a signed exponent, so that the usual `lr: 1e-4` would be text.
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"),
    list("-+.0123456789"),
)


def load_config(
    source: str | Path, overrides: Sequence[tuple[str, str]] = (), plugins: PluginManager | None = None
) -> RunConfig:
    """The configuration of a run.

    Args:
        source: A YAML file, or a recipe's name, or `recipe/name` for another of its run files.
        overrides: Dotted keys and values as YAML text, later ones winning: ``("algorithm.updates", "5")``.
        plugins: Knows the recipes; without it only files can be loaded.

    Raises:
        ConfigError: The file is missing, is no YAML, has an unknown key or a value of the wrong type.
    """
    path = _run_file(source, plugins)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"The run file '{path}' cannot be read: {error}.", "Check its path and encoding.") from error
    tree = _parse(text, str(path))
    if tree is None:
        tree = {}
    if not isinstance(tree, dict):
        raise ConfigError(f"{path}: a run file is a mapping of sections, not a {type(tree).__name__}.")
    for key, value in overrides:
        _override(tree, key, _parse(value, f"--{key}"))
    _find_data_beside(tree, path.parent)
    return check_config(tree, str(path))


def check_config(tree: Mapping[str, Any], where: str = "the configuration") -> RunConfig:
    """Validate a mapping of sections; ``where`` names it in messages."""
    try:
        config = RunConfig.model_validate(tree)
    except ValidationError as error:
        raise explain(error, RunConfig, where) from error
    if config.env is not None and config.flow is not None:
        raise ConfigError(
            f"{where}: both env '{config.env.name}' and flow '{config.flow.name}' are set.",
            "Keep one: an environment is played by the built-in loop, a flow plays the episode itself.",
        )
    if config.flow is not None and config.context is not None:
        raise ConfigError(
            f"{where}: context '{config.context.name}' is set, but flow '{config.flow.name}' owns its context.",
            "Remove `context`, or use an environment in place of the flow.",
        )
    return config


def dump(config: RunConfig) -> str:
    """The configuration as a run file, defaults included; ``load_config`` reads it back unchanged."""
    text: str = yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
    return text


def _run_file(source: str | Path, plugins: PluginManager | None) -> Path:
    path = Path(source)
    if path.is_file():
        return path
    if path.is_dir():
        inside = path / "config.yaml"
        if inside.is_file():  # a run folder: its resolved configuration
            return inside
        raise ConfigError(f"'{source}' is a folder without a config.yaml.", "Name a run file, or a run's folder.")
    recipes = plugins.names("recipe") if plugins is not None else ()
    name, slash, variant = str(source).partition("/")
    if name in recipes and plugins is not None:
        return _recipe_run_file(name, variant if slash else None, plugins)
    folder = path.parent
    files = sorted(str(found) for pattern in ("*.yaml", "*.yml") for found in folder.glob(pattern))
    near = difflib.get_close_matches(str(source), [*recipes, *files], n=3, cutoff=0.5)
    mend = f"Did you mean {' or '.join(repr(each) for each in near)}?" if near else "Name an existing YAML file."
    if not near and recipes:
        mend = f"Name an existing YAML file, or one of the recipes: {', '.join(recipes)}."
    raise ConfigError(f"There is no run file or recipe '{source}'.", mend)


def _recipe_run_file(name: str, variant: str | None, plugins: PluginManager) -> Path:
    files: Mapping[str, Path] = plugins.get("recipe", name).run_files()
    if variant is None:
        return next(iter(files.values()))
    if variant not in files:
        raise ConfigError(
            f"Recipe '{name}' has no run file '{variant}'.",
            f"Say one of: {', '.join(f'{name}/{each}' for each in files)}.",
        )
    return files[variant]


def _parse(text: str, where: str) -> Any:
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise ConfigError(
            f"{where} is not valid YAML: {' '.join(str(error).split())}", "Mend the place named."
        ) from error


def _override(tree: dict[str, Any], key: str, value: Any) -> None:
    """Set a dotted key; a section written as a bare name (``env: tools``) becomes a mapping first."""
    *sections, last = key.split(".")
    node: Any = tree
    for depth, section in enumerate(sections):
        inner = node.get(section)
        if isinstance(inner, str) and _is_named(sections[: depth + 1]):
            inner = {"name": inner}
        elif inner is None:
            inner = {}
        elif not isinstance(inner, dict):
            raise ConfigError(
                f"--{key}: '{'.'.join(sections[: depth + 1])}' is {type(inner).__name__}, not a section.",
                f"Override it whole: `--{'.'.join(sections[: depth + 1])} VALUE`.",
            )
        node[section] = inner
        node = inner
    node[last] = value


def _is_named(path: Sequence[str]) -> bool:
    if list(path) == ["algorithm", "estimator"]:
        return True
    return len(path) == 1 and path[0] in {"renderer", "env", "flow", "context", "engine", "backend"}


def _find_data_beside(tree: dict[str, Any], folder: Path) -> None:
    """A relative data path that does not exist here but does beside the run file means the latter."""
    data = tree.get("data")
    if not isinstance(data, dict):
        return
    for key in ("train", "eval"):
        given = data.get(key)
        if isinstance(given, str) and not Path(given).exists() and (folder / given).exists():
            data[key] = str(folder / given)
