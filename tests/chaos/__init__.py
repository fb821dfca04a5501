"""The chaos run: real worker processes under fire, and proof afterwards that nothing was lost.

make chaos SECONDS=120 SEED=1
"""
