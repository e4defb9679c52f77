"""The answer: which settings to use, why these, and what they keep."""
