"""The modules of the network, and what each costs."""
