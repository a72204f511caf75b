"""From a run configuration to what runs: the training job, an evaluation, or rollouts without training.

The CLI calls ``build_job``, ``build_evaluation`` and ``build_rollouts``; all resolve every name through the plugin
manager and refuse what cannot work, with the key of the run file in the message. Nothing here trains or samples.
"""

from agentr1_core.job.build import build_job, cautions
from agentr1_core.job.evaluation import EvaluationJob, build_evaluation
from agentr1_core.job.rollouts import RolloutJob, build_rollouts

__all__ = ["EvaluationJob", "RolloutJob", "build_evaluation", "build_job", "build_rollouts", "cautions"]
