"""For tests on machines without a GPU only: lets unmodified OpenRLHF run there.

Python imports this module in every process whose PYTHONPATH names this folder: the launch and all Ray workers. It
only registers functions that run after an import; see ``patches`` for what is changed and why, and
``embedded_rollouts``, which is in the path only where vLLM is not installed.
"""

import contextlib

import after_import
import patches

after_import.register(patches.PATCHES)
with contextlib.suppress(ImportError):
    import embedded_rollouts

    after_import.register(embedded_rollouts.PATCHES)
