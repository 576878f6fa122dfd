"""One launch, top to bottom: decorator, launcher, fingerprint, plan, tuning, and the Triton seam."""
