"""What a timeline says, as text, HTML, JSON and a trace for Perfetto. Above the timeline only."""
