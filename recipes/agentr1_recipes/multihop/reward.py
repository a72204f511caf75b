"""A penalty for answers that are not in the form asked for, beside the scores of answers in agentr1-tools.

It is never positive, so that an episode with a positive return is one whose answer was right.
"""

from __future__ import annotations

import re

from agentr1_core.mdp import Trajectory
from agentr1_core.reward import final_answer

_TAG = re.compile(r"</?answer>", re.IGNORECASE)


def answer_format(trajectory: Trajectory) -> float:
    """0 if the final message has one pair of answer tags with something between them, else -1."""
    text = final_answer(trajectory)
    tags = [tag.lower() for tag in _TAG.findall(text)]
    return 0.0 if tags == ["<answer>", "</answer>"] and _TAG.split(text)[1].strip() else -1.0
