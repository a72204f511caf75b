"""``agentr1 lab bias``: how far an estimator's gradient is from the true one, on a task where that is known."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from agentr1_core.errors import ConfigError

if TYPE_CHECKING:
    from agentr1_core.lab import BiasReport
    from agentr1_core.plugins import PluginManager

_CRITICS = ("exact", "none")


def bias(
    name: str,
    plugins: PluginManager,
    *,
    settings: Sequence[str],
    batches: int,
    group_size: int,
    average: str,
    critic: str,
    seed: int,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Measure one estimator, print what was found, and draw it if asked.

    Raises:
        PluginError: There is no estimator of that name.
        ConfigError: A setting is wrong.
    """
    from agentr1_core.lab import draw_bias, measure_bias
    from agentr1_core.lab.bias import Average

    kind = plugins.get("estimator", name)
    for option, value, known in (("--average", average, get_args(Average)), ("--critic", critic, _CRITICS)):
        if value not in known:
            raise ConfigError(f"{option} is '{value}'.", f"Use one of: {', '.join(known)}.")
    report = measure_bias(
        kind(_parsed(settings)),
        n_batches=batches,
        group_size=group_size,
        average=average,  # type: ignore[arg-type]  # checked above
        critic=critic,  # type: ignore[arg-type]
        seed=seed,
    )
    if plot is not None:
        plot.write_text(draw_bias(report), encoding="utf-8")
    if as_json:
        print(json.dumps(_figures(report)))
    else:
        _show(report, plot)


def _parsed(settings: Sequence[str]) -> dict[str, Any]:
    import yaml

    found = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise ConfigError(f"--set {setting} has no value.", "Write it as NAME=VALUE.")
        found[key] = yaml.safe_load(value)
    return found


def _figures(report: BiasReport) -> dict[str, Any]:
    return {
        "estimator": report.estimator,
        "average": report.average,
        "batches": report.n_batches,
        "group_size": report.group_size,
        "verdict": report.verdict,
        "bias": report.bias,
        "scale": report.scale,
        "cosine": report.cosine,
        "variance": report.variance,
        "noise": report.noise,
        "chi_square": report.chi_square,
        "chi_square_scaled": report.chi_square_scaled,
        "chance": report.chance,
        "true": report.true.tolist(),
        "mean": report.mean.tolist(),
        "standard_error": report.error.tolist(),
    }


def _show(report: BiasReport, plot: Path | None) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table(title=f"{report.estimator}: {report.verdict}", show_header=False, title_justify="left")
    for label, value in (
        ("bias", f"{report.bias:.3f} of the true gradient's length"),
        ("scale", f"{report.scale:.3f} (1 is right)"),
        ("cosine to the true gradient", f"{report.cosine:.4f}"),
        ("variance of one batch", f"{report.variance:.3e}"),
        ("noise of one batch / its useful length", f"{report.noise:.2f}"),
        (
            "distance in standard errors, squared",
            f"{report.chi_square:.1f}; rescaled {report.chi_square_scaled:.1f}; chance stays below {report.chance:.1f}",
        ),
        ("measured on", f"{report.n_batches} batches, groups of {report.group_size}, {report.average}"),
    ):
        table.add_row(label, value)
    console.print(table)
    if plot is not None:
        console.print(f"Wrote {plot}", markup=False, soft_wrap=True)
