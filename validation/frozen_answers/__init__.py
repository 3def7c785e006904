"""Answers of some 80 commands, recorded, so that a change that should change none is seen to change none."""
