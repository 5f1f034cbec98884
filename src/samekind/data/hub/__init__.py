"""Benchmark datasets: where they come from, how they are downloaded, checked and loaded."""
