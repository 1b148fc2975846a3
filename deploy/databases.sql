-- The ledger's own database, beside Airflow's. PostgreSQL runs this once, on an empty volume.
CREATE DATABASE ledger;
