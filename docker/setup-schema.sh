#!/bin/sh
# Makes the two databases of the Temporal server, or brings them up to date. SQL_PLUGIN, SQL_HOST, SQL_PORT, SQL_USER
# and SQL_PASSWORD say where; temporal-sql-tool reads them by itself.
set -eu

schema=${SCHEMA_DIR:-/etc/temporal/schema}/postgresql/v12

prepare() {
    database=$1
    versions=$2
    temporal-sql-tool --db "$database" create
    # Only for a new database: on one that holds a schema it would set its version back to 0.0.
    if ! temporal-sql-tool --db "$database" update-schema --schema-dir "$versions"; then
        temporal-sql-tool --db "$database" setup-schema --version 0.0
        temporal-sql-tool --db "$database" update-schema --schema-dir "$versions"
    fi
}

prepare temporal "$schema/temporal/versioned"
prepare temporal_visibility "$schema/visibility/versioned"
