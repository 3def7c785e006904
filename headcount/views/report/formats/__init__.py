"""A report's formats, named after the end of a file's name: `made(report)`, and what is `missing()` for it."""
