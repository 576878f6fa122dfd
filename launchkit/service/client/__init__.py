"""The client of the config service. Above the store and the protocol; knows no server.

store.py is the config store that it is; link.py is whom it asks, and everything below it how.
"""
