-- Beside Airflow's database the ledger's own, with two roles: its owner, who makes the tables, and
-- privsyn_app, which the tasks use. PostgreSQL runs this once, on an empty volume.
\getenv airflow AIRFLOW_PASSWORD
\getenv owner LEDGER_OWNER_PASSWORD
\getenv app LEDGER_PASSWORD
CREATE ROLE airflow LOGIN PASSWORD :'airflow';
CREATE ROLE ledger_owner LOGIN PASSWORD :'owner';
CREATE ROLE privsyn_app LOGIN PASSWORD :'app';
CREATE DATABASE airflow OWNER airflow;
CREATE DATABASE ledger OWNER ledger_owner;
REVOKE ALL ON DATABASE airflow, ledger FROM PUBLIC;
GRANT CONNECT ON DATABASE ledger TO privsyn_app;
