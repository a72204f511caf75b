"""The curves of a report as inline SVG: which metrics belong together, and how they are drawn.

``page`` embeds them. Colours are the page's own variables, so that they follow its light and dark appearance.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

WIDTH, HEIGHT = 460, 260
#: With more updates than this the points are too dense to be dots.
DOTS_UP_TO = 60


@dataclass(frozen=True, slots=True)
class Chart:
    """Metrics drawn together, with what they tell."""

    title: str
    #: Metric name and the word in the legend.
    series: Sequence[tuple[str, str]]
    caption: str
    stacked: bool = False


CHARTS: Sequence[Chart] = (
    Chart("Reward", (("reward", "mean return"),), "Mean return of the trajectories of each update."),
    Chart(
        "Success",
        (("success", "training"), ("eval/success", "held out")),
        "Share of tasks solved, in training and on held-out tasks.",
    ),
    Chart("Steps per episode", (("steps_per_episode", "steps"),), "Turns the agent takes."),
    Chart("Tokens per episode", (("tokens/sampled", "sampled"),), "Tokens the model samples in one episode."),
    Chart("Entropy", (("entropy", "entropy"),), "Mean entropy of the sampled tokens, in nats."),
    Chart(
        "Engine and trainer log-probs",
        (("logprob_gap", "gap"),),
        "Mean absolute difference between the engine's and the trainer's log-probs; close to 0 is right.",
    ),
    Chart("KL to the reference", (("kl", "KL"),), "Divergence from the reference model, where one is used."),
    Chart("Loss", (("loss", "loss"),), "The policy loss; its height means little."),
    Chart("Gradient norm", (("grad_norm", "norm"),), "Before clipping."),
    Chart(
        "Clipped tokens", (("clip_ratio", "share"),), "Share of tokens whose ratio left the trust region in the update."
    ),
    Chart(
        "Token ledger",
        (("ledger/trained", "trained"), ("ledger/masked", "masked"), ("ledger/dropped", "dropped")),
        "Every sampled token is trained, masked or dropped.",
        stacked=True,
    ),
)


@dataclass(frozen=True, slots=True)
class Drawing:
    """A chart that has data."""

    title: str
    caption: str
    svg: str


def draw_curves(metrics: Sequence[Mapping[str, Any]]) -> list[Drawing]:
    """The charts that these updates have figures for.

    Args:
        metrics: Lines of ``metrics.jsonl``: ``update`` and figures by name. Other values than numbers are left out.
    """
    named = {row for chart in CHARTS for row, _ in chart.series}
    rewards = sorted({name for row in metrics for name in row if name.startswith("rewards/")} - named)
    charts = list(CHARTS)
    if len(rewards) > 1:
        series = tuple((name, name.removeprefix("rewards/")) for name in rewards)
        charts.insert(1, Chart("Rewards by name", series, "Each reward, weighted, averaged over trajectories."))
    drawings = []
    for chart in charts:
        lines = {word: _points(metrics, name) for name, word in chart.series}
        lines = {word: points for word, points in lines.items() if points}
        if not lines or (
            all(value == 0 for points in lines.values() for _, value in points) and chart.title != "Reward"
        ):
            continue
        drawings.append(Drawing(chart.title, chart.caption, _stack(lines) if chart.stacked else _plot(lines)))
    return drawings


def _points(metrics: Sequence[Mapping[str, Any]], name: str) -> list[tuple[int, float]]:
    return [
        (int(row["update"]), float(row[name]))
        for row in metrics
        if isinstance(row.get(name), (int, float)) and row[name] == row[name]
    ]


def _plot(lines: Mapping[str, Sequence[tuple[int, float]]]) -> str:
    import pygal

    n_points = max(len(points) for points in lines.values())
    chart = pygal.XY(**_options(len(lines)), show_dots=n_points <= DOTS_UP_TO, dots_size=2.5, stroke_style={"width": 2})
    for word, points in lines.items():
        # A series with gaps (an evaluation now and then) keeps its dots, or it would not be seen.
        chart.add(word, points, show_dots=len(points) <= DOTS_UP_TO)
    return _clean(chart.render(is_unicode=True))


def _stack(lines: Mapping[str, Sequence[tuple[int, float]]]) -> str:
    import pygal

    updates = sorted({update for points in lines.values() for update, _ in points})
    chart = pygal.StackedLine(
        **_options(len(lines)),
        fill=True,
        include_x_axis=True,
        show_dots=len(updates) == 1,
        x_labels_major_count=6,
        show_minor_x_labels=False,
        stroke_style={"width": 1},
    )
    chart.x_labels = [str(update) for update in updates]
    for word, points in lines.items():
        values = dict(points)
        chart.add(word, [values.get(update, 0.0) for update in updates])
    return _clean(chart.render(is_unicode=True))


def _options(n_series: int) -> dict[str, Any]:
    from pygal.style import Style

    style = Style(
        background="transparent",
        plot_background="transparent",
        foreground="var(--soft)",
        foreground_strong="var(--ink)",
        foreground_subtle="var(--line)",
        guide_stroke_color="var(--line)",
        major_guide_stroke_color="var(--line)",
        guide_stroke_dasharray="none",
        major_guide_stroke_dasharray="none",
        colors=("var(--c1)", "var(--c2)", "var(--c3)", "var(--c4)", "var(--c5)"),
        font_family="inherit",
        label_font_size=16,
        major_label_font_size=16,
        legend_font_size=16,
        opacity=".55",
        stroke_opacity="1",
        stroke_width="1.8",
        transition="0",
    )
    return {
        "style": style,
        "js": (),
        "width": WIDTH,
        "height": HEIGHT,
        "disable_xml_declaration": True,
        "show_legend": n_series > 1,
        "legend_at_bottom": True,
        "legend_at_bottom_columns": n_series,
        "legend_box_size": 10,
        "margin": 6,
        "show_x_guides": False,
        "value_formatter": _number,
        "x_value_formatter": _number,
        "max_scale": 5,
        "no_data_text": "",
        "truncate_label": -1,
    }


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _clean(svg: str) -> str:
    """Without the script and comments that pygal adds: the page runs no code and names no address."""
    return re.sub(r"<!--.*?-->|<script.*?</script>", "", svg, flags=re.DOTALL)
