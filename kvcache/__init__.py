"""Where the bytes of a served model live."""
