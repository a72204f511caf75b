"""The quick start: a small model learns to add three numbers with tools, one addition a turn."""
