"""What an evaluation measures and keeps: attempts at tasks, estimates with intervals, and the folder they lie in.

``agentr1 eval`` plays; nothing here does.
"""

from agentr1_core.evaluation.attempt import Attempt, default_grouping, group_of, keyed, task_name
from agentr1_core.evaluation.estimates import (
    Estimate,
    estimate_mean,
    estimate_rate,
    pass_all_k,
    pass_at_k,
    wilson_interval,
)
from agentr1_core.evaluation.folder import EvaluationFolder
from agentr1_core.evaluation.identity import Identity, identify
from agentr1_core.evaluation.summary import Figures, Summary, TaskResult, summarise

__all__ = [
    "Attempt",
    "Estimate",
    "EvaluationFolder",
    "Figures",
    "Identity",
    "Summary",
    "TaskResult",
    "default_grouping",
    "estimate_mean",
    "estimate_rate",
    "group_of",
    "identify",
    "keyed",
    "pass_all_k",
    "pass_at_k",
    "summarise",
    "task_name",
    "wilson_interval",
]
