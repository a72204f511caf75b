"""The report of a run: one HTML file that needs nothing else, neither a network nor scripts.

The CLI calls ``write_report`` at the end of a run and for ``agentr1 report``. It reads only the run folder.
"""

from agentr1_core.report.page import write_report

__all__ = ["write_report"]
