"""What people see: tables, progress, and the words of a plan, an account, a release."""
