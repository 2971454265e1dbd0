#!/bin/sh
# Run once by the database's image, on a new volume: a database, and a role that owns it and may do nothing else.
# In a shell of its own: the image may read this file into its own shell.
(
  set -eu
  psql --no-psqlrc --set ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname postgres \
    --set role="$PARTY_ROLE" --set password="$(cat "$PARTY_PASSWORD_FILE")" <<'SQL'
CREATE ROLE :"role" LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION PASSWORD :'password';
CREATE DATABASE :"role" OWNER :"role";
REVOKE ALL ON DATABASE :"role" FROM PUBLIC;
SQL
)
