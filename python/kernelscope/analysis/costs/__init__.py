"""What operators had to do, what they achieved, and what the GPU could attain."""
