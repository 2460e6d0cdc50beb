#!/bin/sh
# Waits for the Temporal server at TEMPORAL_ADDRESS, and creates TEMPORAL_NAMESPACE with the search attributes.
set -eu

tries=0
until temporal operator cluster health >/dev/null 2>&1; do
    tries=$((tries + 1))
    if [ "$tries" -ge 120 ]; then
        echo "the Temporal server at $TEMPORAL_ADDRESS did not respond within two minutes" >&2
        exit 1
    fi
    sleep 1
done

# Closed runs are kept for 90 days; the default of Temporal is three days.
temporal operator namespace describe --namespace "$TEMPORAL_NAMESPACE" >/dev/null 2>&1 ||
    temporal operator namespace create --namespace "$TEMPORAL_NAMESPACE" --retention 90d

# A new namespace is available in all parts of the server only after a few seconds.
tries=0
until existing=$(temporal operator search-attribute list --namespace "$TEMPORAL_NAMESPACE" 2>/dev/null); do
    tries=$((tries + 1))
    [ "$tries" -lt 60 ] || exit 1
    sleep 1
done

for attribute in DagwrightState=Keyword DagwrightAwaiting=KeywordList DagwrightSession=Keyword \
    DagwrightTitle=Keyword DagwrightTemplate=Keyword DagwrightTags=KeywordList \
    DagwrightOwner=Keyword DagwrightRoot=Keyword DagwrightProgress=Keyword; do
    name=${attribute%=*}
    case $existing in
    *"$name"*) ;;
    *)
        temporal operator search-attribute create --namespace "$TEMPORAL_NAMESPACE" \
            --name "$name" --type "${attribute#*=}"
        ;;
    esac
done
