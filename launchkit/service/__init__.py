"""The config service: one store of tuned configs for many machines. Above the store, no torch."""
