"""What makes the things around the package: bundles, checks of what is shipped, pictures for the documentation."""
