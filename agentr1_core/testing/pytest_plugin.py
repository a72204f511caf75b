"""pytest plugin: makes assertions in the conformance kit as telling as in your own tests. Loaded by pytest itself."""

import pytest

pytest.register_assert_rewrite(
    "agentr1_core.testing.engine_kit",
    "agentr1_core.testing.env_kit",
    "agentr1_core.testing.tool_kit",
    "agentr1_core.testing.backend_kit",
)
