"""Benchmark datasets: how they are downloaded, checked and loaded."""
