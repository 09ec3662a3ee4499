"""The Linux tools by subject, as the design documents name them."""
