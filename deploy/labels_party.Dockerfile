# The labels party's service. Build from the top folder:  docker build -f deploy/labels_party.Dockerfile .

FROM python:3.12-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY shared shared
COPY labels_party labels_party
COPY features_party features_party
RUN python -m venv /opt/label-dp && /opt/label-dp/bin/pip install --no-cache-dir '.[postgres]'

# only the finished environment goes on: no sources, no build tools
FROM python:3.12-slim
RUN useradd --uid 10001 --home-dir /var/lib/labels-party --create-home --shell /usr/sbin/nologin labels-party \
 && chmod 0700 /var/lib/labels-party \
 && install -d -o labels-party -m 0700 /handover
COPY --from=build /opt/label-dp /opt/label-dp
ENV PATH=/opt/label-dp/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    NUMBA_CACHE_DIR=/var/lib/labels-party/numba \
    LABELS_PARTY_HOME=/var/lib/labels-party \
    LABELS_PARTY_HOST=0.0.0.0 \
    LABELS_PARTY_PORT=8001
USER labels-party
WORKDIR /var/lib/labels-party
# compiled once here; a fresh volume starts with these kernels
RUN python -c "from labels_party.mechanisms.bins import warm_up; warm_up()"
VOLUME /var/lib/labels-party
EXPOSE 8001
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8001/healthz', timeout=4)"]
CMD ["labels-party", "serve"]
