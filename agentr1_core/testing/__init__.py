"""The conformance kit: checks that every engine, environment, tool, backend, estimator and tool format must pass.

Subclass a kit in your tests and say how to make the thing; the checks come with it. ``play`` plays an episode with
given answers, and ``ScriptedEngine`` says them, so that an environment can be tested without a model.
"""

from agentr1_core.testing.play import call, play
from agentr1_core.testing.scripted_engine import ScriptedEngine

__all__ = ["ScriptedEngine", "call", "play"]
