"""Builds what surrounds the package: generated pages, pictures, bundles, and checks of what is shipped."""
