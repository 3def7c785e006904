"""What no two answers may contradict."""
