"""Experiments on what is known exactly: how an estimator's gradient compares with the true one.

``agentr1 lab`` runs them. They need neither a model nor an engine.
"""

from __future__ import annotations

from agentr1_core.lab.bias import BiasReport, measure_bias
from agentr1_core.lab.mdp import StoppingMDP
from agentr1_core.lab.plot import draw_bias

__all__ = ["BiasReport", "StoppingMDP", "draw_bias", "measure_bias"]
