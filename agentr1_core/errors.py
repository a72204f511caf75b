"""The errors agentr1 raises, each with the mend in its message.

Every error names what is wrong and what to do about it. The classes are few: they say *whose* fault it
is (the run file, the data, a plugin, the engine, an environment), since that is what callers act on.
"""

from __future__ import annotations


class AgentR1Error(Exception):
    """Base of all errors raised on purpose by agentr1.

    Args:
        problem: What is wrong, naming the file, field or plugin.
        mend: What the reader can do about it; shown after an arrow.
    """

    def __init__(self, problem: str, mend: str | None = None) -> None:
        self.problem = problem
        self.mend = mend
        super().__init__(problem if mend is None else f"{problem}\n  -> {mend}")


class ConfigError(AgentR1Error):
    """A run file or an override is wrong."""


class DataError(AgentR1Error):
    """A data set, a column or a row is missing or malformed."""


class PluginError(AgentR1Error):
    """A plugin is unknown, ambiguous, broken or lacks a capability."""


class EngineError(AgentR1Error):
    """An inference engine failed; the only error the collector retries."""

    #: Whether asking again cannot help, so that nobody retries.
    final = False


class EnvError(AgentR1Error):
    """An environment or flow broke its contract."""


class RewardError(AgentR1Error):
    """A reward is not a finite number or could not be computed."""
