"""``launchkit bench soak``: whether memory stays flat over millions of launches."""
