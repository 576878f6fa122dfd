"""Parts of ``launchkit bench predict``: what-if predictions from a capture, held to what was run."""
