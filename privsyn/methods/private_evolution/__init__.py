"""Private evolution of images and texts (Lin et al. 2024, Xie et al. 2024)."""
