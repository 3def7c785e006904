"""Accuracy and speed of Headcount, and how its constants and the tables of its docs are made.

README.md here says which command makes which figure, page or constant. Run them from the repository's root:
`python -m validation.NAME --help`. `--data DIR` names the folder of public measurements, which is not part of the
repository.
"""
