"""What benchmarks compare the scan with: an inference engine's wrappers, kernel by kernel."""
