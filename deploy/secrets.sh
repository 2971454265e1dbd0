#!/bin/sh
# Passwords that nobody chose, as the files that docker-compose.yml names under `secrets`. Made once: a second call
# changes nothing.
#   deploy/secrets.sh [FOLDER]
set -eu
folder=${1:-$(dirname "$0")/secrets}
umask 077 # the folder keeps others out; the files themselves are read by the users of the containers
mkdir -p "$folder"
put() {
  cat > "$folder/.$1"
  chmod 444 "$folder/.$1"
  mv -f "$folder/.$1" "$folder/$1"
}
for party in labels features; do
  for name in administrator party; do
    [ -s "$folder/$party-$name" ] || od -An -v -N24 -tx1 /dev/urandom | tr -d ' \n' | put "$party-$name"
  done
  echo "postgresql://${party}_party:$(cat "$folder/$party-party")@$party-db:5432/${party}_party" | put "$party-database-url"
done
