"""Sampling by py-spy: what it saw, what processes noted meanwhile, and the file of both. Leaves.

combining.py puts both together; pyspy.py reads py-spy's own files.
"""
