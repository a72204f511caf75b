"""GSM8K: word problems, solved with a calculator, one calculation a turn."""
