// Placeholder, replaced by the target's first slice.
