#!/bin/sh
# As in Airflow's own image: bash and python are run as they are, all else is a command of airflow.
case "${1:-}" in
  bash | python) exec "$@" ;;
  airflow) shift ;;
esac
exec airflow "$@"
