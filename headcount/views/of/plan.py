"""The cheapest fleet for these people, in words."""

from headcount.views.of.plan_summary import details, summary
from headcount.views.of.plan_text import body, head

__all__ = ["body", "details", "head", "summary"]
