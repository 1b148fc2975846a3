"""Tests, a folder for each package of privsyn. They import each other by their full names."""
