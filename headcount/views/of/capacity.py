"""How many users these GPUs serve, in words."""

from headcount.views.of.capacity_summary import details, summary
from headcount.views.of.capacity_text import body, head

__all__ = ["body", "details", "head", "summary"]
