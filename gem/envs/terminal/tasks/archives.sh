mkdir -p unpacked && tar xzf backup.tar.gz -C unpacked && cd unpacked
for part in parts/*; do
  mkdir -p "in/$part" && tar xf "$part" -C "in/$part" 2>/dev/null || echo "$part"
done | LC_ALL=C sort > ../damaged.txt
cp "$(find in -type f -exec sha256sum {{}} + | awk '$1 == "{digest}" {{print $2}}')" ../found.dat
cd ..
