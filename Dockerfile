# pspo on CPUs, as a user without rights. Build and run, with data and runs in the current folder:
#   docker build -t pspo .
#   docker run --rm -v "$PWD:/data" --user "$(id -u):$(id -g)" pspo train log.csv --out runs/log
FROM python:3.12-slim AS build
WORKDIR /source
COPY pyproject.toml setup.py constraints.txt README.md LICENSE ./
COPY src src
RUN python -m venv /opt/pspo \
    && /opt/pspo/bin/pip install --no-cache-dir --constraint constraints.txt ".[tables,export]"

FROM python:3.12-slim
COPY --from=build /opt/pspo /opt/pspo
RUN useradd --uid 1000 --create-home pspo \
    && mkdir --mode=1777 /cache \
    && install --directory --owner=pspo /data
# Any user may be given with --user, also one without a home: the cache has a place of its own.
ENV PATH=/opt/pspo/bin:$PATH \
    PSPO_CACHE=/cache/pspo \
    MPLCONFIGDIR=/cache/matplotlib \
    PYTHONUNBUFFERED=1
USER 1000:1000
WORKDIR /data
ENTRYPOINT ["pspo"]
CMD ["--help"]
