"""New plugin packages from templates: what ``agentr1 new`` writes."""

from agentr1_core.scaffold.project import KINDS, new_project

__all__ = ["KINDS", "new_project"]
