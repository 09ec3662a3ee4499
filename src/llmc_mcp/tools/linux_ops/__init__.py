"""The Linux tools, one module per subject."""
