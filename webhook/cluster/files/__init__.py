"""Objects in files: JSON and YAML, and recorded clusters."""
