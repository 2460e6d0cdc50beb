#!/bin/sh
# Creates or updates the two databases of the Temporal server. temporal-sql-tool reads the address and the credentials
# from SQL_PLUGIN, SQL_HOST, SQL_PORT, SQL_USER and SQL_PASSWORD.
set -eu

schema=${SCHEMA_DIR:-/etc/temporal/schema}/postgresql/v12

prepare() {
    database=$1
    versions=$2
    temporal-sql-tool --db "$database" create
    if output=$(temporal-sql-tool --db "$database" update-schema --schema-dir "$versions" 2>&1); then
        printf '%s\n' "$output"
        return
    fi
    # Only a new database has no table of versions (SQLSTATE 42P01 is "undefined table"). On a database that holds a
    # schema, setup-schema would set the version back to 0.0, so any other failure ends the script.
    if ! printf '%s\n' "$output" | grep -Eq 'schema_version.*does not exist|42P01'; then
        printf '%s\n' "$output" >&2
        echo "the schema of the database '$database' could not be updated; nothing was changed" >&2
        exit 1
    fi
    temporal-sql-tool --db "$database" setup-schema --version 0.0
    temporal-sql-tool --db "$database" update-schema --schema-dir "$versions"
}

prepare temporal "$schema/temporal/versioned"
prepare temporal_visibility "$schema/visibility/versioned"
