"""What each question's result says in words: `head`, `body` and `summary`, one file a question."""
