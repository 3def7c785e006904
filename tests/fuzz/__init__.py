"""Whatever comes in, one clear answer or one clear error comes out."""
