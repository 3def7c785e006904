"""The compiled core: what `simulator.reference` decides, fast."""
