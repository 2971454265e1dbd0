"""Pages in a real browser: each role signs in and clicks through; errors of the console and of axe-core fail."""
