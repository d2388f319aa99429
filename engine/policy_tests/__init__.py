"""Policy tests: the cases an author writes beside a policy, their objects, and their runner."""
