"""Many ranks on one clock: their communication, and late ranks."""
