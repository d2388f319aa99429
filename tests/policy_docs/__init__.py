"""Pages of the manual, and the schema for editors, that are made of the code they describe.

`python -m tests.policy_docs` writes them; what is compared with what stands in
`tests/test_policy_docs.py`.
"""
