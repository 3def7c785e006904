"""The report's sections, found by name: one file each with `TITLE`, `ORDER`, `SHOWN_BY`, `parts(answer)`."""
