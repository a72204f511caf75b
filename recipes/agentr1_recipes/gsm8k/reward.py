"""Rewards for GSM8K that score as verl's and Agent-R1's scorer does, character for character.

``gsm8k_strict`` wants the number after ``#### ``; ``gsm8k_flexible`` takes the last thing that looks like a number.
Both look at the last 300 characters of the final message and compare texts: ``72.0`` is not ``72``. The reward
``gsm8k`` of agentr1-tools compares numbers instead.
"""

from __future__ import annotations

import re

from agentr1_core.mdp import Trajectory
from agentr1_core.reward import final_answer
from agentr1_tools.qa import gold_answers

#: Characters at the end of a message that are looked at.
TAIL = 300
_STRICT = re.compile(r"#### (-?[0-9.,]+)")
_NUMBER = re.compile(r"-?[0-9.,]+")


def strict_answer(text: str) -> str | None:
    """What follows the last ``#### ``, without commas; ``None`` if no number does."""
    found = _STRICT.findall(text[-TAIL:])
    return found[-1].replace(",", "") if found else None


def flexible_answer(text: str) -> str | None:
    """The last run of digits, dots and commas that is not a lone dot, as it stands; ``None`` without one."""
    found = [each for each in _NUMBER.findall(text[-TAIL:]) if each != "."]
    return found[-1] if found else None


def gsm8k_strict(trajectory: Trajectory) -> float:
    """1 if the number after ``#### `` in the final message is the ground truth."""
    return float(strict_answer(final_answer(trajectory)) in gold_answers(trajectory.task, "gsm8k_strict"))


def gsm8k_flexible(trajectory: Trajectory) -> float:
    """1 if the last number of the final message is the ground truth."""
    return float(flexible_answer(final_answer(trajectory)) in gold_answers(trajectory.task, "gsm8k_flexible"))
