# The worker: runs plans and serves the built-in tools and those of the applications.
FROM python:3.11.14-slim-bookworm AS build
WORKDIR /app
COPY requirements/build.txt requirements/apps.txt requirements/
COPY apps apps
RUN python -m venv .venv
# The packages of the applications are built with the locked setuptools; the engine is copied below.
RUN .venv/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes -r requirements/apps.txt -r requirements/build.txt \
    && .venv/bin/pip install --no-cache-dir --disable-pip-version-check --no-deps --no-build-isolation ./apps/onboarding ./apps/maritime

FROM python:3.11.14-slim-bookworm
RUN useradd --system --uid 10001 --home-dir /var/lib/dagwright dagwright
RUN install -d -o dagwright /var/lib/dagwright /var/lib/dagwright/files
RUN install -d -o dagwright -m 700 /var/lib/dagwright/state
RUN install -d -o dagwright -m 700 /var/lib/dagwright-payloads
WORKDIR /app
COPY --from=build /app/.venv .venv
COPY dagwright dagwright
COPY workflows workflows
COPY activities activities
COPY worker.py starter.py docker/probe.py ./
ENV PATH=/app/.venv/bin:$PATH \
    PYTHONPATH=/app \
    PYTHONUNBUFFERED=1 \
    DAGWRIGHT_STATE_DIR=/var/lib/dagwright/state \
    DAGWRIGHT_FILES_ROOT=/var/lib/dagwright/files \
    DAGWRIGHT_LOG_FORMAT=json \
    DAGWRIGHT_HEALTH_ADDRESS=0.0.0.0:8485
USER dagwright
VOLUME /var/lib/dagwright /var/lib/dagwright-payloads
# Liveness only: an orchestrator must not restart the container because Temporal is unavailable.
HEALTHCHECK --interval=10s --timeout=10s --start-period=30s --retries=3 \
    CMD ["python", "-I", "-S", "/app/probe.py", "8485", "/livez"]
ENTRYPOINT ["python", "worker.py"]
