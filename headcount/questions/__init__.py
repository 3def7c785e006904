"""What a question is about: a deployment and a load."""
