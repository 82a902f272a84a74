"""Two traces, aligned, and what makes them differ."""
