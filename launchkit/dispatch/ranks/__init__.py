"""``agree_across_ranks``: the ranks of a distributed job launch with the same configs. On top of dispatch."""
