"""Write a complete plugin package: an entry point, an implementation, tests with the conformance kit, CI and a licence.

``agentr1 new`` calls it. Everything is rendered before anything is written, and nothing is ever overwritten.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from agentr1_core.errors import ConfigError
from agentr1_core.plugins import API_VERSION
from agentr1_core.scaffold.names import Names, names_for

_TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True, slots=True)
class Kind:
    """What differs from kind to kind, beside the templates."""

    hook: str
    #: One line about what the template does; ``{title}`` is the package's name.
    summary: str
    #: How a run file names it.
    usage: str
    #: Whether the plugin offers a class, which is written in capitals, or a function.
    is_class: bool = True


KINDS: Mapping[str, Kind] = {
    "tool": Kind("agentr1_tools", "A tool that counts words, for agents.", "tools: [{package}]", is_class=False),
    "env": Kind("agentr1_envs", "An environment in which agents guess a number.", "env: {package}"),
    "engine": Kind("agentr1_engines", "An inference engine for agentr1.", "engine: {package}"),
    "estimator": Kind(
        "agentr1_estimators",
        "A credit estimator for agentr1.",
        "algorithm: {estimator: {name: PACKAGE, limit: 1.0}, group_size: 8}",
    ),
}


def new_project(kind: str, name: str, folder: Path | None = None) -> Path:
    """Write the package and return its folder.

    Args:
        kind: One of ``KINDS``.
        name: Of the distribution; the module and what it offers are called alike.
        folder: Where to write it, a folder named after the distribution when left out.

    Raises:
        ConfigError: The kind is unknown, the name cannot be used, or there is something in the folder.
    """
    if kind not in KINDS:
        raise ConfigError(f"There is no template for a '{kind}'.", f"Say one of: {', '.join(KINDS)}.")
    names = names_for(name)
    target = (folder or Path(names.dist)).expanduser()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ConfigError(
            f"There is something in '{target}' already.", "Name another folder with --dir; nothing was changed."
        )
    files = _render(kind, names)
    for path, text in files.items():
        file = target / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return target


def _render(kind: str, names: Names) -> dict[str, str]:
    """Each file's path in the project, and its text."""
    import jinja2

    from agentr1_core import __version__

    chosen = KINDS[kind]
    major, minor = (int(part) for part in __version__.split(".")[:2])
    values = {
        "name": names.dist,
        "package": names.package,
        "target": names.title if chosen.is_class else names.package,
        "kind": kind,
        "hook": chosen.hook,
        "summary": chosen.summary,
        "usage": chosen.usage.replace("{package}", names.package).replace("PACKAGE", names.package),
        "api_version": API_VERSION,
        "core_range": f">={major}.{minor},<{major}.{minor + 1}",
        "year": date.today().year,
    }
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True, autoescape=False)
    files: dict[str, str] = {}
    for root in (_TEMPLATES / "every_kind", _TEMPLATES / kind):
        for source in sorted(root.rglob("*.j2")):
            path = source.relative_to(root).as_posix().removesuffix(".j2")
            path = path.replace("PACKAGE", names.package).replace("dot-", ".")
            files[path] = environment.from_string(source.read_text(encoding="utf-8")).render(values)
    return files
