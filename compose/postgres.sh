#!/bin/sh
# PostgreSQL with TLS. A new folder is initialised first, with the password of the user "postgres".
set -eu
bin=$(echo /usr/lib/postgresql/*/bin)
data=/data/postgres
if [ ! -e "$data/PG_VERSION" ]; then
    "$bin/initdb" --pgdata "$data" --username postgres --pwfile /run/secrets/postgres-password \
        --auth scram-sha-256 --encoding UTF8 --locale C.UTF-8
fi
exec "$bin/postgres" -D "$data" -c listen_addresses='*' -c hba_file=/servers/pg_hba.conf -c ssl=on \
    -c ssl_cert_file=/run/secrets/postgres-certificate -c ssl_key_file=/run/secrets/postgres-key
