#!/usr/bin/env bash
# An engine and base images for a machine that has neither and can reach no image registry: Debian's packages of Docker,
# Compose and Buildx, and images of the same names and users made from Debian's packages. What differs from the real ones:
# Debian's Python (3.13) and PostgreSQL (17) in place of the official builds.
#   stand_ins.sh FOLDER     serves the engine at FOLDER/engine.sock until it is told to end; FOLDER keeps what was made
# Needs root on Debian, a mirror of its packages, iptables and 15 GB. It starts a dockerd of its own, which changes iptables.
set -euo pipefail
folder=$1
mkdir -p "$folder"/{lists/partial,cache/archives/partial,debs,x,config/cli-plugins,python,postgres}
mirror=$( (cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null || true) | sed -nE 's/^(deb (\[[^]]*\] )?|URIs: *)([a-z]+:[^ ]+).*/\3/p' | awk '!/security/ && !n++')
command -v dockerd >/dev/null && command -v debootstrap >/dev/null || apt-get -o DPkg::Lock::Timeout=300 install -qqy --no-install-recommends docker.io debootstrap iptables
if [ ! -x "$folder/config/cli-plugins/docker-compose" ]; then # Debian 13's plugins need only libc 2.34
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror trixie main" > "$folder/trixie.list"
  apt=(-o Dir::Etc::sourcelist="$folder/trixie.list" -o Dir::Etc::sourceparts=- -o Dir::State::lists="$folder/lists" -o Dir::Cache="$folder/cache" -o Dir::State::status=/dev/null)
  apt-get "${apt[@]}" -qq update
  (cd "$folder/debs" && apt-get "${apt[@]}" -qq download docker-compose docker-buildx 2>/dev/null && for deb in *.deb; do dpkg-deb -x "$deb" ../x; done)
  cp "$folder"/x/usr/libexec/docker/cli-plugins/docker-* "$folder/config/cli-plugins/"
fi
export DOCKER_CONFIG=$folder/config DOCKER_HOST=unix://$folder/engine.sock
dockerd --data-root "$folder/data" --exec-root "$folder/exec" -H "$DOCKER_HOST" --pidfile "$folder/engine.pid" > "$folder/engine.log" 2>&1 &
engine=$!
trap 'kill $engine; wait $engine || true' EXIT
trap 'exit 0' TERM INT
for _ in $(seq 60); do docker info >/dev/null 2>&1 && break; sleep 1; done
if ! docker image inspect stand-in/debian >/dev/null 2>&1; then
  [ -f "$folder/rootfs.tar" ] || { debootstrap --variant=minbase trixie "$folder/rootfs" "$mirror" >/dev/null; tar -C "$folder/rootfs" --exclude='./var/cache/*' --exclude='./var/lib/apt/lists/*' --exclude='./usr/share/doc/*' --exclude='./usr/share/man/*' --exclude='./usr/share/locale/*' -cf "$folder/rootfs.tar" .; rm -rf "$folder/rootfs"; }
  docker import -c 'ENV PATH=/usr/lib/postgresql/17/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8' "$folder/rootfs.tar" stand-in/debian >/dev/null
fi
cp /etc/ssl/certs/ca-certificates.crt "$folder/python/"
printf '[global]\ncert = /etc/ssl/certs/ca-certificates.crt\n' > "$folder/python/pip.conf"
cat > "$folder/python/Dockerfile" <<'END'
FROM stand-in/debian
RUN apt-get update -q && apt-get install -qy --no-install-recommends ca-certificates python3 python3-venv && apt-get clean && rm -rf /var/lib/apt/lists/* && ln -s python3 /usr/bin/python
COPY ca-certificates.crt /etc/ssl/certs/
COPY pip.conf /etc/
END
docker build -q -t stand-in/python:3.12-slim "$folder/python" >/dev/null
cat > "$folder/postgres/entrypoint.sh" <<'END'
#!/bin/sh
set -eu
if [ ! -s "$PGDATA/PG_VERSION" ]; then # as the official image: a server without an address while it is set up
  initdb --username="$POSTGRES_USER" --pwfile="$POSTGRES_PASSWORD_FILE" --auth-local=trust --auth-host=scram-sha-256 >/dev/null
  echo 'host all all all scram-sha-256' >> "$PGDATA/pg_hba.conf"
  pg_ctl -D "$PGDATA" -o "-c listen_addresses=''" -w start >/dev/null
  createdb --username="$POSTGRES_USER" "$POSTGRES_DB"
  for script in /docker-entrypoint-initdb.d/*.sh; do "$script"; done
  sleep "${SLOW_INIT:-5}"
  pg_ctl -D "$PGDATA" -m fast -w stop >/dev/null
fi
exec "$@" -c listen_addresses='*'
END
chmod +x "$folder/postgres/entrypoint.sh"
cat > "$folder/postgres/Dockerfile" <<'END'
FROM stand-in/debian
RUN groupadd --gid 70 postgres && useradd --uid 70 --gid 70 --home-dir /var/lib/postgresql postgres \
 && apt-get update -q && apt-get install -qy --no-install-recommends postgresql-common && sed -ri 's/^#?create_main_cluster.*/create_main_cluster = false/' /etc/postgresql-common/createcluster.conf \
 && apt-get install -qy --no-install-recommends postgresql-17 && apt-get clean && rm -rf /var/lib/apt/lists/* \
 && install -d -o postgres -g postgres -m 0700 /var/lib/postgresql/data && install -d -o postgres -g postgres -m 3777 /var/run/postgresql
COPY entrypoint.sh /
ENV PGDATA=/var/lib/postgresql/data
VOLUME /var/lib/postgresql/data
STOPSIGNAL SIGINT
ENTRYPOINT ["/entrypoint.sh"]
CMD ["postgres"]
END
docker build -q -t stand-in/postgres:17-alpine "$folder/postgres" >/dev/null
echo ready > "$folder/ready"
wait $engine
