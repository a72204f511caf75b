"""Rewards for questions with short answers, scored as the official SQuAD and HotpotQA scripts score.

``exact match`` and ``F1`` follow Rajpurkar et al. 2016 (SQuAD's ``evaluate-v1.1.py``) and Yang et al. 2018 (HotpotQA's
``hotpot_evaluate_v1.py``). Several gold answers count as their best. What stands between the last ``<answer>`` and
``</answer>`` is the answer, or else the whole final message.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from agentr1_core.errors import RewardError
from agentr1_core.mdp import Trajectory
from agentr1_core.reward import final_answer
from agentr1_core.task import Task

#: HotpotQA: these are right or wrong as a whole.
_CLOSED = frozenset({"yes", "no", "noanswer"})
_TAGGED = re.compile(r"<answer>((?:(?!<answer>).)*?)</answer>", re.DOTALL | re.IGNORECASE)


def normalise(text: str) -> str:
    """Lower case, without punctuation, articles and superfluous spaces, in that order, as both scripts do it."""
    text = "".join(character for character in text.lower() if character not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def exact(said: str, gold: str) -> float:
    """1 if both are equal after normalisation."""
    return float(normalise(said) == normalise(gold))


def f1(said: str, gold: str) -> float:
    """SQuAD's F1 of the words of both after normalisation."""
    words, golden = normalise(said).split(), normalise(gold).split()
    n_common = (Counter(words) & Counter(golden)).total()
    if n_common == 0:
        return 0.0
    precision, recall = n_common / len(words), n_common / len(golden)
    return 2 * precision * recall / (precision + recall)


def hotpot_f1(said: str, gold: str) -> float:
    """HotpotQA's F1: SQuAD's, but 0 where one side is yes, no or noanswer and the other is not the same."""
    normal, golden = normalise(said), normalise(gold)
    if normal != golden and (normal in _CLOSED or golden in _CLOSED):
        return 0.0
    return f1(said, gold)


def contains(said: str, gold: str) -> float:
    """1 if the normalised gold answer is part of the normalised text, as Agent-R1 and Search-R1 score it."""
    return float(normalise(gold) in normalise(said))


def extract(text: str) -> str:
    """What stands between the last answer tags, or else the text."""
    tagged = _TAGGED.findall(text)
    return str(tagged[-1]).strip() if tagged else text.strip()


def qa_em(trajectory: Trajectory) -> float:
    """Exact match of the answer with the best gold answer."""
    return _best(exact, trajectory, "qa_em")


def qa_f1(trajectory: Trajectory) -> float:
    """SQuAD's F1 of the answer with the best gold answer."""
    return _best(f1, trajectory, "qa_f1")


def qa_hotpot_f1(trajectory: Trajectory) -> float:
    """HotpotQA's F1 of the answer with the best gold answer."""
    return _best(hotpot_f1, trajectory, "qa_hotpot_f1")


def qa_sub_em(trajectory: Trajectory) -> float:
    """Whether the answer contains one of the gold answers."""
    return _best(contains, trajectory, "qa_sub_em")


def _best(score: Any, trajectory: Trajectory, name: str) -> float:
    said = extract(final_answer(trajectory))
    return max(score(said, gold) for gold in gold_answers(trajectory.task, name))


def gold_answers(row: Mapping[str, Any], name: str) -> list[str]:
    """The gold answers of a row.

    Raises:
        RewardError: It has none; the message names the reward.
    """
    truth = (row if isinstance(row, Task) else Task(row)).ground_truth
    if isinstance(truth, Mapping):
        truth = truth.get("target")
    answers = list(truth) if isinstance(truth, Sequence) and not isinstance(truth, str) else [truth]
    if not answers or any(answer is None for answer in answers):
        raise RewardError(
            f"Reward '{name}' needs a ground truth, but the row has none.",
            "Give rows `reward_model: {ground_truth: ...}` or a column `ground_truth` or `answer`.",
        )
    return [str(answer) for answer in answers]
