# The labels party's service. Build from the top folder:  docker build -f deploy/labels_party.Dockerfile .

# another base image of the same contents, such as a mirror's: --build-arg PYTHON_IMAGE=…
ARG PYTHON_IMAGE=python:3.12-slim@sha256:78387bc3881b8273120a12ebe6c1ab22b018ccc2c9adf565ae1ac9b536e184ea

FROM ${PYTHON_IMAGE} AS build
RUN apt-get update -q && apt-get install -qy --no-install-recommends binutils
RUN python -m venv /build && python -m venv --without-pip /opt/label-dp
COPY deploy/locks/build.txt /locks/
RUN /build/bin/pip install --no-cache-dir --require-hashes --no-deps -r /locks/build.txt

# every package by its hash, before any source: an edit of ours installs none of them again
FROM build AS packages
COPY deploy/locks/labels-party.txt /locks/
RUN /build/bin/pip --python /opt/label-dp/bin/python install --no-cache-dir --require-hashes --no-deps -r /locks/labels-party.txt
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

# only the finished environment goes on: no sources, no build tools, no installer
FROM ${PYTHON_IMAGE}
LABEL org.opencontainers.image.title="label-DP labels party" \
      org.opencontainers.image.description="Sensitive labels in, one signed, privatized message out, every ε accounted for." \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="0.1.0"
RUN find / -xdev -depth \( -path '*-packages/pip*' -o -name ensurepip -o -path '*/bin/pip*' \) -exec rm -rf {} + \
 && groupadd --gid 10001 labels-party \
 && useradd --uid 10001 --gid 10001 --home-dir /var/lib/labels-party --no-create-home --shell /usr/sbin/nologin labels-party \
 && install -d -o 10001 -g 10001 -m 0700 /var/lib/labels-party \
 && install -d -o 10001 -g 10001 -m 0700 /handover
COPY --from=packages /opt/label-dp /opt/label-dp
COPY --from=project /project /opt/label-dp
ENV PATH=/opt/label-dp/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    NUMBA_CACHE_DIR=/var/lib/labels-party/numba \
    LABELS_PARTY_HOME=/var/lib/labels-party/home \
    LABELS_PARTY_HOST=0.0.0.0 \
    LABELS_PARTY_PORT=8001 \
    LABELS_PARTY_PROBES_PORT=9101
# a number, so that an orchestrator can see that it is not root
USER 10001:10001
WORKDIR /var/lib/labels-party
# compiled once here; a fresh volume starts with these kernels
RUN python -c "import pyarrow.dataset, pyarrow.parquet, opendp.measurements; from labels_party.mechanisms.bins import warm_up; warm_up()"
VOLUME /var/lib/labels-party
EXPOSE 8001
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9101/healthz', timeout=4)"]
# last, so that another commit builds no layer anew: --build-arg REVISION=$(git rev-parse --short HEAD)
ARG REVISION=
LABEL org.opencontainers.image.revision="${REVISION}"
ENV LABELS_PARTY_REVISION=${REVISION}
CMD ["labels-party", "serve"]
