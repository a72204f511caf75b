"""ALFWorld: household tasks in text, played with the real TextWorld engine, which runs in processes of its own."""
