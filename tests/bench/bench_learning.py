"""Does a recipe's tiny run learn? Three seeds, and for each a negative control from the same warm-started model.

The control gives every trajectory the advantage of a random other one, so nothing but chance can move it. Prints one
JSON object as its last line and draws the curves of all runs into ``docs/assets/RECIPE.svg`` with ``--draw``.

    make bench-quickstart
    python tests/bench/bench_learning.py --recipe gsm8k --draw
    python tests/bench/bench_learning.py --recipe papers --curve reward --draw
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

AGENTR1 = Path(sys.executable).with_name("agentr1")
ROOT = Path(__file__).parents[2]


#: What may be drawn, by its name among the metrics of an update.
CURVES = {"success": "Share of tasks solved", "reward": "Mean return of an episode"}


def train(recipe: str, folder: Path, *overrides: str, curve: str, keep: bool) -> dict:
    """One run in a process of its own; its summary and its curve, one value for each update."""
    if not (keep and (folder / "summary.json").is_file()):
        command = [str(AGENTR1), "train", recipe, "--run-dir", str(folder), "--overwrite", *overrides]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    summary = json.loads((folder / "summary.json").read_text())
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    values = [json.loads(line)[curve] for line in lines]
    few = max(1, len(values) // 6)
    ends = {f"{curve}_first": sum(values[:few]) / few, f"{curve}_last": sum(values[-few:]) / few}
    return {**summary, **ends, "curve": values}


def draw(runs: list[dict], controls: list[dict], curve: str, target: Path) -> None:
    """The curve in training by update: learning runs in blue, controls in grey."""
    import pygal
    from pygal.style import CleanStyle

    style = CleanStyle(
        background="white",
        plot_background="white",
        colors=("#1a5fb4",) * len(runs) + ("#9a9996",) * len(controls),
        font_family="sans-serif",
        title_font_size=13,
        guide_stroke_color="#dddddd",
        major_guide_stroke_color="#dddddd",
    )
    extent = (0, 1) if curve == "success" else None
    chart = pygal.Line(
        style=style, width=720, height=360, show_dots=False, range=extent, show_legend=False,
        title=f"{CURVES[curve]}, by update. Blue: each seed. Grey: the same with advantages shuffled.", js=[],
    )  # fmt: skip
    longest = max(len(run["curve"]) for run in runs)
    chart.x_labels = [str(update) for update in range(1, longest + 1)]
    chart.x_labels_major = [str(update) for update in range(5, longest + 1, 5)]
    chart.show_minor_x_labels = False
    for name, group in (("seed", runs), ("control", controls)):
        for seed, run in enumerate(group):
            chart.add(f"{name} {seed}", run["curve"], stroke_style={"width": 2})
    target.parent.mkdir(parents=True, exist_ok=True)
    chart.render_to_file(str(target))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--recipe", default="quickstart", help="whose first run file is run")
    parser.add_argument("--curve", choices=CURVES, default="success", help="what is drawn, and told of both ends")
    parser.add_argument("--controls", type=int, help="how many seeds get a control; all when unset")
    parser.add_argument("--keep", action="store_true", help="take runs that are finished as they are")
    parser.add_argument("--draw", action="store_true", help="write docs/assets/RECIPE.svg")
    options = parser.parse_args()
    runs, controls = [], []
    for position, seed in enumerate(options.seeds):
        folder = ROOT / "runs" / f"bench-{options.recipe}-{seed}"
        runs.append(train(options.recipe, folder, "--run.seed", str(seed), curve=options.curve, keep=options.keep))
        print(f"seed {seed}: {runs[-1]['success_before']:.3f} -> {runs[-1]['success_after']:.3f}", flush=True)
        if options.controls is not None and position >= options.controls:
            continue
        controls.append(
            train(
                options.recipe,
                folder.with_name(f"{folder.name}-control"),
                *("--run.seed", str(seed), "--model", str(folder / "warm_start")),
                *("--algorithm.shuffle_advantages", "true"),
                curve=options.curve,
                keep=options.keep,
            )
        )
        print(f"  control: {controls[-1]['success_before']:.3f} -> {controls[-1]['success_after']:.3f}", flush=True)
    if options.draw:
        draw(runs, controls, options.curve, ROOT / "docs" / "assets" / f"{options.recipe}.svg")
    ends = (f"{options.curve}_first", f"{options.curve}_last")
    kept = ("success_before", "success_after", *ends, "seconds", "updates", "ledger")
    figures = {
        name: {str(seed): {key: run[key] for key in kept} for seed, run in zip(options.seeds, group, strict=False)}
        for name, group in (("seeds", runs), ("controls", controls))
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
