"""One module a version of the database, oldest first by its number. Of the service."""
