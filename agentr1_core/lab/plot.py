"""The picture of a bias measurement: the true gradient beside the mean of the estimated ones, as SVG."""

from __future__ import annotations

import re

from agentr1_core.lab.bias import BiasReport

_ACTIONS = ("answer", "search", "give up")


def draw_bias(report: BiasReport) -> str:
    """One pair of bars for each place and action; the range is the mean's 2 standard errors. An SVG document."""
    import pygal
    from pygal.style import Style

    chart = pygal.Bar(
        title=f"{report.estimator}: {report.verdict} (cosine {report.cosine:.3f}, scale {report.scale:.2f})",
        width=900,
        height=420,
        legend_at_bottom=True,
        js=(),
        x_label_rotation=30,
        value_formatter=lambda value: f"{value:.3f}",
        style=Style(colors=("#4c72b0", "#dd8452"), background="white", plot_background="white", title_font_size=16),
    )
    chart.x_labels = [f"{_ACTIONS[a]} in {place + 1}" for place in range(len(report.true)) for a in range(3)]
    chart.add("true gradient", [float(x) for x in report.true.reshape(-1)])
    pairs = zip(report.mean.reshape(-1), report.error.reshape(-1), strict=True)
    chart.add(
        "mean of the estimates",
        [{"value": float(m), "ci": {"low": float(m - 2 * e), "high": float(m + 2 * e)}} for m, e in pairs],
    )
    # Without the script and comments that pygal adds: a picture runs no code and names no address.
    svg: str = chart.render(is_unicode=True)
    return re.sub(r"<!--.*?-->|<script.*?</script>", "", svg, flags=re.DOTALL)
