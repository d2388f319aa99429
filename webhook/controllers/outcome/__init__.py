"""What became of advice and nominations: where pods were bound, and what that says of policies."""
