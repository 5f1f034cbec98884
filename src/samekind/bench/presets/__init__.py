"""Benchmarks as data: one module for each table of Wang, Tu & Zhou 2020, arXiv:2002.09891, with one preset for each cell."""
