"""Multi-hop questions: search for passages, turn by turn, until the answer is known."""
