"""The answers to people's questions: figures, notes, a verdict. One file a question."""
