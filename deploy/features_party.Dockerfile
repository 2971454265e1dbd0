# The features party's service. Build from the top folder:  docker build -f deploy/features_party.Dockerfile .

# another base image of the same contents, such as a mirror's: --build-arg PYTHON_IMAGE=…
ARG PYTHON_IMAGE=python:3.12-slim@sha256:78387bc3881b8273120a12ebe6c1ab22b018ccc2c9adf565ae1ac9b536e184ea

FROM ${PYTHON_IMAGE} AS build
RUN apt-get update -q && apt-get install -qy --no-install-recommends binutils
RUN python -m venv /build && python -m venv --without-pip /opt/label-dp
COPY deploy/locks/build.txt /locks/
RUN /build/bin/pip install --no-cache-dir --require-hashes --no-deps -r /locks/build.txt

# every package by its hash, before any source: an edit of ours installs none of them again
FROM build AS packages
COPY deploy/locks/features-party.txt /locks/
RUN /build/bin/pip --python /opt/label-dp/bin/python install --no-cache-dir --require-hashes --no-deps -r /locks/features-party.txt
COPY deploy/images/slim.sh /
RUN /slim.sh /opt/label-dp

FROM build AS project
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY shared shared
COPY labels_party labels_party
COPY features_party features_party
RUN /build/bin/python -m hatchling build -t wheel -d /wheel \
 && /build/bin/pip --python /opt/label-dp/bin/python install --no-cache-dir --no-deps --prefix /project /wheel/*.whl

# only the finished environment goes on: no sources, no build tools, no installer; xgboost-cpu brings its own OpenMP
FROM ${PYTHON_IMAGE} AS base
LABEL org.opencontainers.image.title="label-DP features party" \
      org.opencontainers.image.description="Privatized messages in, every ε accounted for, models out." \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="0.1.0"
RUN find / -xdev -depth \( -path '*-packages/pip*' -o -name ensurepip -o -path '*/bin/pip*' \) -exec rm -rf {} + \
 && groupadd --gid 10001 features-party \
 && useradd --uid 10001 --gid 10001 --home-dir /var/lib/features-party --no-create-home --shell /usr/sbin/nologin features-party \
 && install -d -o 10001 -g 10001 -m 0700 /var/lib/features-party \
 && install -d -o 10001 -g 10001 -m 0700 /handover
COPY --from=packages /opt/label-dp /opt/label-dp
COPY --from=project /project /opt/label-dp
ENV PATH=/opt/label-dp/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    OMP_WAIT_POLICY=PASSIVE \
    FEATURES_PARTY_HOME=/var/lib/features-party/home \
    FEATURES_PARTY_HOST=0.0.0.0 \
    FEATURES_PARTY_PORT=8002 \
    FEATURES_PARTY_PROBES_PORT=9102
# an image without a working trainer must not be built
RUN python -c "import onnx, pyarrow.dataset, pyarrow.parquet, scipy.optimize, xgboost"
# a number, so that an orchestrator can see that it is not root
USER 10001:10001
WORKDIR /var/lib/features-party

# the demo's story, played against two running services (docker compose --profile demo)
FROM base AS demo
LABEL org.opencontainers.image.title="label-DP demo"
COPY deploy/__init__.py /opt/label-dp/demo/deploy/
COPY deploy/demo /opt/label-dp/demo/deploy/demo
COPY deploy/verify_standalone /opt/label-dp/demo/deploy/verify_standalone
USER 0:0
RUN install -d -o 10001 -g 10001 -m 0700 /demo-output
USER 10001:10001
WORKDIR /opt/label-dp/demo
CMD ["python", "-m", "deploy.demo", "--help"]

FROM base AS service
VOLUME /var/lib/features-party
EXPOSE 8002
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9102/healthz', timeout=4)"]
# last, so that another commit builds no layer anew: --build-arg REVISION=$(git rev-parse --short HEAD)
ARG REVISION=
LABEL org.opencontainers.image.revision="${REVISION}"
ENV FEATURES_PARTY_REVISION=${REVISION}
CMD ["features-party", "serve"]
