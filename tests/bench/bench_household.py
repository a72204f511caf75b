"""Does a small model learn the household game? And a negative control from the same warm-started model.

The control gives every trajectory the advantage of a random other one, so nothing but chance can move it. Prints one
JSON object as its last line and draws the curves into ``docs/assets/household.svg`` with ``--draw``.

    make bench-household
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

AGENTR1 = Path(sys.executable).with_name("agentr1")
ROOT = Path(__file__).parents[2]
SHUFFLED = ("--algorithm.shuffle_advantages", "true")


def train(folder: Path, *overrides: str) -> dict:
    """One run in a process of its own, or the one that is in the folder already; its summary and its curve."""
    if not (folder / "summary.json").is_file():
        command = [str(AGENTR1), "train", "household", "--run-dir", str(folder), "--overwrite", *overrides]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    summary = json.loads((folder / "summary.json").read_text())
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return {**summary, "curve": [json.loads(line)["success"] for line in lines]}


def draw(runs: dict[str, list[dict]], target: Path) -> None:
    """Success in training by update: GiGPO in blue, the control in grey."""
    import pygal
    from pygal.style import CleanStyle

    colours = {"gigpo": "#1a5fb4", "control": "#9a9996"}
    style = CleanStyle(
        background="white",
        plot_background="white",
        colors=tuple(colours[name] for name, group in runs.items() for _ in group),
        font_family="sans-serif",
        title_font_size=13,
        guide_stroke_color="#dddddd",
        major_guide_stroke_color="#dddddd",
    )
    chart = pygal.Line(
        style=style, width=720, height=360, show_dots=False, range=(0, 1), show_legend=False, js=[],
        title="Share of household tasks solved, by update. Blue: GiGPO. Grey: with advantages shuffled.",
    )  # fmt: skip
    longest = max(len(run["curve"]) for group in runs.values() for run in group)
    chart.x_labels = [str(update) for update in range(1, longest + 1)]
    chart.x_labels_major = [str(update) for update in range(5, longest + 1, 5)]
    chart.show_minor_x_labels = False
    for name, group in runs.items():
        for number, run in enumerate(group):
            chart.add(f"{name} {number}", run["curve"], stroke_style={"width": 2})
    target.parent.mkdir(parents=True, exist_ok=True)
    chart.render_to_file(str(target))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "bench-household", help="keeps finished runs")
    parser.add_argument("--draw", action="store_true", help="write docs/assets/household.svg")
    options = parser.parse_args()
    runs: dict[str, list[dict]] = {"gigpo": [], "control": []}
    for seed in options.seeds:
        folder = options.folder / f"seed-{seed}"
        runs["gigpo"].append(train(folder, "--run.seed", str(seed)))
        warm = str(folder / "warm_start")
        control = folder.with_name(f"{folder.name}-control")
        runs["control"].append(train(control, "--run.seed", str(seed), "--model", warm, *SHUFFLED))
        for name, group in runs.items():
            last = group[-1]
            print(f"seed {seed}, {name}: {last['success_before']:.3f} -> {last['success_after']:.3f}", flush=True)
    if options.draw:
        draw(runs, ROOT / "docs" / "assets" / "household.svg")
    kept = ("success_before", "success_after", "seconds", "updates", "ledger")
    print(json.dumps({name: [{key: run[key] for key in kept} for run in group] for name, group in runs.items()}))


if __name__ == "__main__":
    main()
