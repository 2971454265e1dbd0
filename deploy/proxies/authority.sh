#!/bin/sh
# A private authority of the two parties, and a certificate for each NAME (the name that clients type):
#   authority.sh FOLDER NAME...
# FOLDER/authority.pem goes to everybody, FOLDER/NAME/ to who has that name: certificate.pem and key.pem for a proxy, and
# client.pem, both in one file, for calls to others. FOLDER/authority.key signs: keep it off-line. What exists is kept.
set -eu
umask 077
folder=$1; shift
mkdir -p "$folder"
cd "$folder"
if [ ! -e authority.key ]; then
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -days 3650 -subj "/CN=label-DP authority" \
    -addext basicConstraints=critical,CA:TRUE,pathlen:0 -addext keyUsage=critical,keyCertSign,cRLSign \
    -keyout authority.key -out authority.pem 2>/dev/null
fi
for name in "$@"; do
  [ ! -e "$name/client.pem" ] || continue
  mkdir -p "$name"
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -subj "/CN=$name" -keyout "$name/key.pem" -out "$name/request" 2>/dev/null
  printf 'subjectAltName=DNS:%s\nextendedKeyUsage=serverAuth,clientAuth\nbasicConstraints=critical,CA:FALSE\n' "$name" > "$name/extensions"
  openssl x509 -req -in "$name/request" -CA authority.pem -CAkey authority.key -days 397 -extfile "$name/extensions" \
    -out "$name/certificate.pem" 2>/dev/null
  cat "$name/certificate.pem" "$name/key.pem" > "$name/client.pem"
  rm "$name/request" "$name/extensions"
done
