"""The tables of an evaluation say the names that the data has."""

import io
from types import SimpleNamespace

from rich.console import Console

from agentr1_core.cli.eval_tables import show_summary
from agentr1_core.evaluation import Attempt, summarise
from agentr1_core.run_folder import RunFolder


def test_groups_that_look_like_markup_are_shown_as_they_are(tmp_path):
    attempts = [
        Attempt(name, 0, name, True, 1.0, 1, 5, 9, "terminated", 0.5, info={"[/x]": 1.0}) for name in ("one", "two")
    ]
    out = io.StringIO()
    summary = summarise(attempts, {"one": "gsm8k[main]", "two": "[/b]"})
    show_summary(
        Console(file=out, width=200),
        summary,
        SimpleNamespace(model="tiny"),
        RunFolder(tmp_path),
        split="eval",
        column="[source]",
    )
    for name in ("gsm8k[main]", "[/b]", "[/x]", "info/[/x]", "[source]"):
        assert name in out.getvalue()
