"""The service's pages, rendered on the server. Above the service's tables."""
