"""Games that are played by typing commands, as environments: what `alfworld` and `household` share."""
