"""Running a user's module without changing it: calls, inputs, snapshots, counted products."""
