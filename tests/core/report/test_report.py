"""The run folder, its recorder, and the report made of it."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentr1_core.config import check_config
from agentr1_core.mdp import Action, Observation, Step, StopReason, Trajectory, float_array, token_array
from agentr1_core.plugins import PluginManager
from agentr1_core.report import write_report
from agentr1_core.report.curves import draw_curves
from agentr1_core.report.steps import TokenTexts, choose, new_messages
from agentr1_core.run_folder import Recorder, RunFolder

USER = {"role": "user", "content": "Is <b>1 & 2</b> bold?"}


def played(name: str, reward: float = 1.0, text: str = "yes", ids: list[int] | None = None) -> Trajectory:
    ids = ids or [3, 4]
    action = Action(
        token_ids=token_array(ids),
        logprobs=float_array([-0.01, *[-2.0] * (len(ids) - 1)]),
        text=text,
        message={"role": "assistant", "content": text},
    )
    answer = {"role": "tool", "content": "a <script>alert(1)</script> answer"}
    first = Observation((USER,), prompt_ids=token_array([1, 2]))
    appended = Observation((USER, action.message, answer), prompt_ids=token_array(range(9)))
    steps = (
        Step(0, first, action, feedback=(answer,), reward=0.0, next_observation=appended),
        Step(1, appended, action, reward=reward, terminated=True, continued=True, info={"score": np.float32(0.5)}),
    )
    return Trajectory(name, name.rpartition("/")[0], {"q": 1}, steps, StopReason.TERMINATED, rewards={"env": reward})


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(check_config({"run": {"dir": str(tmp_path / "runs"), "name": "demo"}}))


def test_the_recorder_keeps_the_first_few_of_each_update_and_all_of_an_evaluation(folder: RunFolder) -> None:
    recorder = Recorder(folder, kept_per_update=2)
    hooks = PluginManager()
    hooks.register(recorder, "recorder")
    for number in range(3):
        hooks.hook.agentr1_trajectory(trajectory=played(f"eval/{number}/0"))
    for update in (1, 2):
        for member in range(4):
            hooks.hook.agentr1_trajectory(trajectory=played(f"{update}/0/{member}"))
        hooks.hook.agentr1_update(metrics={"reward": update / 2, "loss": np.float64(0.1)}, step=update)
    recorder.close()

    kept = folder.read_trajectories()
    assert [(row["phase"], row["update"], row["id"]) for row in kept] == [
        ("eval", 0, "eval/0/0"),
        ("eval", 0, "eval/1/0"),
        ("eval", 0, "eval/2/0"),
        ("train", 1, "1/0/0"),
        ("train", 1, "1/0/1"),
        ("train", 2, "2/0/0"),
        ("train", 2, "2/0/1"),
    ]
    step = kept[0]["steps"][1]
    assert (step["token_ids"], step["prompt_tokens"], step["reward"]) == ([3, 4], 9, 1.0)
    assert step["info"] == {"score": 0.5}
    assert [(row["update"], row["reward"]) for row in folder.read_metrics()] == [(1, 0.5), (2, 1.0)]


def test_metrics_are_on_disk_as_soon_as_they_are_told(folder: RunFolder) -> None:
    recorder = Recorder(folder)
    recorder.agentr1_update(metrics={"reward": 1.0}, step=1)

    assert json.loads(folder.metrics.read_text())["reward"] == 1.0
    recorder.close()


def test_an_update_that_a_resumed_run_plays_again_counts_once(folder: RunFolder) -> None:
    for played_again in (False, True):
        recorder = Recorder(folder)
        for update in (2, 3) if played_again else (1, 2):
            recorder.agentr1_update(metrics={"reward": update + played_again / 2}, step=update)
        recorder.close()

    assert [(row["update"], row["reward"]) for row in folder.read_metrics()] == [(1, 1.0), (2, 2.5), (3, 3.5)]


def test_trajectories_of_an_update_that_never_came_are_kept(folder: RunFolder) -> None:
    recorder = Recorder(folder)
    recorder.agentr1_update(metrics={}, step=1)
    recorder.agentr1_trajectory(played("1/0/0"))
    recorder.close()

    assert [(row["phase"], row["update"]) for row in folder.read_trajectories()] == [("train", 2)]


def test_a_line_that_was_cut_off_by_a_crash_is_left_out(folder: RunFolder) -> None:
    folder.metrics.write_text('{"update": 1, "reward": 0.5}\n{"update": 2, "rew')

    assert folder.read_metrics() == [{"update": 1, "reward": 0.5}]


class Page(HTMLParser):
    """Tags, their attributes, and whether all are closed."""

    VOID = frozenset({"meta", "link", "br", "img", "input", "hr"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name in ("src", "href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_report_is_one_page_without_scripts_or_addresses(folder: RunFolder) -> None:
    recorder = Recorder(folder)
    for update in range(1, 4):
        recorder.agentr1_trajectory(played(f"{update}/0/0", reward=float(update > 1)))
        figures = {"reward": update / 3, "success": update / 4, "entropy": 1.0, "steps_per_episode": 2.0}
        ledger = {"ledger/sampled": 10, "ledger/trained": 7, "ledger/masked": 1, "ledger/dropped": 2}
        recorder.agentr1_update(metrics={**figures, **ledger}, step=update)
    recorder.close()
    folder.write_summary(
        {
            "success_before": 0.25,
            "success_after": 0.875,
            "seconds": 61.0,
            "updates": 3,
            "ledger": {"sampled": 30, "trained": 21, "masked": 3, "dropped": 6},
            "model": "tiny",
            "recipe": None,
            "version": "0.1.0",
        }
    )

    text = write_report(folder).read_text()
    page = Page(text)

    assert page.open == []
    assert "script" not in page.tags
    assert page.links == []
    assert set(re.findall(r"https?://[^\s\"'<]+", text)) == {"http://www.w3.org/2000/svg"}
    assert page.tags.count("svg") == 5
    for shown in ("25.0&thinsp;%", "87.5&thinsp;%", "1 min 1 s", "21 trained", "3 masked", "6 dropped"):
        assert shown in text


def test_what_models_and_tools_say_is_escaped(folder: RunFolder) -> None:
    recorder = Recorder(folder)
    recorder.agentr1_trajectory(played("1/0/0", text="</div><img src=x>\ud83d"))
    recorder.close()

    text = write_report(folder).read_text()

    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "<img" not in text
    assert "src=x&gt;\\ud83d" in text
    assert "Is &lt;b&gt;1 &amp; 2&lt;/b&gt; bold?" in text


def test_a_run_that_has_only_begun_still_has_a_report(folder: RunFolder) -> None:
    assert "This run is not finished." in write_report(folder).read_text()


def test_tokens_are_told_apart_with_the_runs_own_tokenizer(folder: RunFolder, tokenizer: Any) -> None:
    tokenizer.save_pretrained(folder.path / "checkpoint")
    ids = [*tokenizer.encode("né", add_special_tokens=False), tokenizer.eos_token_id]
    logprobs = [-0.01, -0.5, -1.0, -5.0]

    tokens = TokenTexts(folder.path).tokens({"token_ids": ids, "logprobs": logprobs})

    assert tokens is not None
    # é is two bytes here, so two tokens, of which the first alone is no character yet
    assert [token.surprise for token in tokens] == [0, 1, 2, 4]
    assert (tokens[0].text, tokens[3].text) == ("n", "<|im_end|>")
    assert TokenTexts(folder.path / "nothing").tokens({"token_ids": ids, "logprobs": logprobs}) is None


def test_best_worst_first_and_last_are_shown_once_each() -> None:
    rows = [{"reward": reward, "update": i} for i, reward in enumerate([0.5, 0.0, 1.0, 1.0, 0.25])]

    shown = choose(rows, 4)

    assert [(list(each.labels), each.row["update"]) for each in shown] == [
        (["best"], 3),
        (["worst"], 1),
        (["first"], 0),
        (["last"], 4),
    ]
    assert [list(each.labels) for each in choose(rows[:1], 4)] == [["best", "worst", "first", "last"]]
    assert len(choose(rows, 5)) == 5
    assert choose([], 4) == []
    assert choose(rows, 0) == []


def test_an_appended_context_is_not_shown_twice() -> None:
    a, b, c, d = ({"role": role, "content": role} for role in ("user", "assistant", "tool", "system"))
    steps = [{"seen": [a], "feedback": [c]}, {"seen": [a, b, c], "feedback": [d]}, {"seen": [d], "feedback": []}]

    assert new_messages(steps, 0) == (0, [a])
    assert new_messages(steps, 1) == (3, [])
    assert new_messages(steps, 2) == (0, [d])


def test_only_figures_that_exist_are_drawn() -> None:
    metrics = [{"update": 1, "reward": 0.5, "kl": 0.0, "note": "x"}, {"update": 2, "reward": float("nan"), "kl": 0.0}]

    assert [each.title for each in draw_curves(metrics)] == ["Reward"]
    assert draw_curves([]) == []
