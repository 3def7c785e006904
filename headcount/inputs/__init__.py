"""What a question is asked with: frozen inputs, each field with its type, help, unit and default once."""
