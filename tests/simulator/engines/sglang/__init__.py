"""SGLang's room."""
