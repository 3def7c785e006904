"""Speed and accuracy of Headcount, and how the constants that it ships are made."""
