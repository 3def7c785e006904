"""Answers as HTML files that open offline; needs the optional extra `report`."""
