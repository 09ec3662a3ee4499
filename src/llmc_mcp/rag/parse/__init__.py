"""Text in, facts out: language, symbols, chunks, references and words of one file.

No file is opened here and nothing is stored: `build` reads, `store` stores.
"""
