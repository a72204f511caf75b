"""See the package."""

TokensPrompt = dict
