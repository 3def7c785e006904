"""The HTML report of `headcount capacity`: one file that opens offline."""

from headcount.report.document import prepare_report, write_report

__all__ = ["prepare_report", "write_report"]
