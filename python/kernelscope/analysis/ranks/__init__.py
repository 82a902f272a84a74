"""Many ranks on one clock: what they communicate, and who is late."""
