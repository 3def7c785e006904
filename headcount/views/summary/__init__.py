"""The summary of a result: question, answer, cost, confidence, assumptions, risk."""
