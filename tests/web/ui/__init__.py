"""The pages for people, in a real browser and over plain HTTP."""
