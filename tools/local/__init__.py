"""What `make demo`, `make up` and `make down` run: this checkout's own Airflow and MLflow."""
