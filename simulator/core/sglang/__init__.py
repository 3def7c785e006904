"""SGLang's scheduler and radix tree, compiled; the reference is `conformance.reference.sglang`."""
