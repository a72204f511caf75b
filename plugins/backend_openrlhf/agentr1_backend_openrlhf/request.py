"""What the step trainer tells an agent executor, in the place of a row's label.

OpenRLHF hands labels through to the executor untouched, whatever they are. An executor that gets anything but a
``Request`` serves a stock trainer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt to be played some number of times."""

    #: The row's own label.
    label: Any
    #: The group its episodes are compared in.
    group_id: str
    #: How many episodes the group has.
    size: int
    training: bool = True
    #: Play nothing; close what is open.
    close: bool = False


#: Key of an executor's answer that holds the whole trajectory.
TRAJECTORY = "agentr1_trajectory"
