"""Benchmarks as data: a module per table of Wang, Tu & Zhou 2020, arXiv:2002.09891, with one preset per cell."""
