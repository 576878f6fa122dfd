"""Chrome traces as timelines: torch.profiler's (kineto) and others'. Above the model.

reader.py goes through a trace; text.py and events.py are how its JSON gets there.
"""
