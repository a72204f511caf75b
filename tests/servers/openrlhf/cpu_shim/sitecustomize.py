"""For tests on machines without a GPU only: lets unmodified OpenRLHF run there.

Python imports this module in every process whose PYTHONPATH names this folder: the launch and all Ray workers. It
only registers ``after_import.register``; see ``patches`` for what is changed and why.
"""

import after_import
import patches

after_import.register(patches.PATCHES)
