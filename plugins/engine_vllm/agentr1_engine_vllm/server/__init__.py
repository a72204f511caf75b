"""What runs on the server's side, in the interpreter that has vLLM; the trainer's process imports none of it."""
