"""Reserved for the cost models: FLOP and bytes of an operator from its shapes, as pure arithmetic."""
