"""What is made from a finished release at no cost."""
