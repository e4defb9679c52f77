"""Litmus programs: small, known sequences of file operations, of which every state that a crash
can leave is seen, under the explorer's rules and on real file systems (``benchmarks/litmus.py``).
"""
