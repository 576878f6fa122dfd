"""One launch, top to bottom. Imports leaves and the store; of the library the recorder imports it.

What a user calls: launcher.py, decorator.py, install.py, frozen.py, op_plans.py, grids.py, stats.py,
explaining.py, stores.py, watching.py, and the packages manifest and ranks.

A launch: launcher.py finds the kernel's Launcher (launch_path.py, autotuned_path.py,
heuristic_path.py, adapters.py), whose core (keeping.py, the package native) has a plan (plan.py) or
misses. A miss: choosing.py asks what this process knows, then the store (stored_choice.py), then
the package tuning; Triton compiles and launches, and keeping.py makes a plan of it. What differs
between versions of Triton is in triton_seam.py.
"""
