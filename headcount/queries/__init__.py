"""What people ask: one file a question, each a function of inputs that returns a plain result."""
