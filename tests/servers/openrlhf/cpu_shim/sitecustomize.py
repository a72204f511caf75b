"""For tests on machines without a GPU only: lets unmodified OpenRLHF run there.

Python imports this module in every process whose PYTHONPATH names this folder: the launch and all Ray workers. It
only registers functions that run after an import: see ``patches`` and ``store_group`` for what is changed and why,
``embedded_rollouts``, which is in the path only where vLLM is not installed, and ``vllm_on_cpu`` for where it is.
"""

import after_import
import patches
import store_group

try:
    import embedded_rollouts as rollouts
except ModuleNotFoundError:
    import vllm_on_cpu as rollouts

for module in (patches, store_group, rollouts):
    after_import.register(module.PATCHES)
