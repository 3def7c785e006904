"""What users do: conversations drawn turn by turn, and what they are on average."""
