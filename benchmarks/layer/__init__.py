"""``launchkit bench layer``: a short continuation of one prompt, by layer and by step."""
