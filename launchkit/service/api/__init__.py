"""The HTTP API of the config service: a router a subject. Of the service's server, below app.py."""
