# The features party's service. Build from the top folder:  docker build -f deploy/features_party.Dockerfile .

FROM python:3.12-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY shared shared
COPY labels_party labels_party
COPY features_party features_party
RUN python -m venv /opt/label-dp && /opt/label-dp/bin/pip install --no-cache-dir '.[postgres,onnx]'

# only the finished environment goes on: no sources, no build tools; xgboost-cpu brings its own OpenMP
FROM python:3.12-slim AS base
RUN useradd --uid 10001 --home-dir /var/lib/features-party --create-home --shell /usr/sbin/nologin features-party \
 && chmod 0700 /var/lib/features-party \
 && install -d -o features-party -m 0700 /handover
COPY --from=build /opt/label-dp /opt/label-dp
ENV PATH=/opt/label-dp/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    OMP_WAIT_POLICY=PASSIVE \
    NUMBA_CACHE_DIR=/var/lib/features-party/numba \
    FEATURES_PARTY_HOME=/var/lib/features-party \
    FEATURES_PARTY_HOST=0.0.0.0 \
    FEATURES_PARTY_PORT=8002
# an image without a working trainer must not be built
RUN python -c "import xgboost"
USER features-party
WORKDIR /var/lib/features-party

# the demo's story, played against two running services (docker compose --profile demo)
FROM base AS demo
COPY deploy /opt/label-dp/demo/deploy
USER root
RUN install -d -o features-party -m 0700 /demo-output
USER features-party
WORKDIR /opt/label-dp/demo
CMD ["python", "-m", "deploy.demo", "--help"]

FROM base AS service
VOLUME /var/lib/features-party
EXPOSE 8002
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8002/healthz', timeout=4)"]
CMD ["features-party", "serve"]
