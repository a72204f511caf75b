"""Does the small model of the papers recipe learn? One run, and a negative control from the same warm-started model.

The control gives every trajectory the advantage of a random other one, so nothing but chance can move it. Prints one
JSON object as its last line and draws both curves into ``docs/assets/papers.svg`` with ``--draw``.

    python tests/bench/bench_papers.py --draw
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

AGENTR1 = Path(sys.executable).with_name("agentr1")
ROOT = Path(__file__).parents[2]


def train(folder: Path, *overrides: str) -> list[float]:
    """One run in a process of its own: the mean return of each update's episodes."""
    command = [str(AGENTR1), "train", "papers", "--run-dir", str(folder), "--overwrite", *overrides]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return returns(folder)


def returns(folder: Path) -> list[float]:
    """The mean return of each update of a run, also of one that was stopped."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["reward"] for line in lines]


def draw(curves: dict[str, list[float]], target: Path) -> None:
    """Mean return in training by update."""
    import pygal
    from pygal.style import CleanStyle

    style = CleanStyle(background="white", plot_background="white", colors=("#1a5fb4", "#9a9996"), title_font_size=13)
    chart = pygal.Line(
        style=style, width=720, height=360, show_dots=False, show_legend=len(curves) > 1, js=[],
        title="Mean return of an episode, by update",
    )  # fmt: skip
    longest = max(map(len, curves.values()))
    chart.x_labels = [str(update) for update in range(1, longest + 1)]
    chart.x_labels_major = [str(update) for update in range(5, longest + 1, 5)]
    chart.show_minor_x_labels = False
    for name, curve in curves.items():
        chart.add(name, curve, stroke_style={"width": 2})
    target.parent.mkdir(parents=True, exist_ok=True)
    chart.render_to_file(str(target))


def main() -> None:
    """Run both, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "bench-papers")
    parser.add_argument("--draw", action="store_true", help="write docs/assets/papers.svg")
    options = parser.parse_args()
    curves = {"learning": train(options.folder / "run")}
    warm_start = options.folder / "run" / "warm_start"
    control = ("--model", str(warm_start), "--algorithm.shuffle_advantages", "true")
    curves["control"] = train(options.folder / "control", *control)
    if options.draw:
        draw(curves, ROOT / "docs" / "assets" / "papers.svg")
    print(json.dumps({name: _ends(curve) for name, curve in curves.items()}))


def _ends(curve: list[float]) -> dict[str, Any]:
    few = max(1, len(curve) // 6)
    return {"updates": len(curve), "first": sum(curve[:few]) / few, "last": sum(curve[-few:]) / few}


if __name__ == "__main__":
    main()
