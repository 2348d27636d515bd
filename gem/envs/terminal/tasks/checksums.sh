while read -r sum path; do
  echo "$sum  live/$path" | sha256sum --status -c && continue
  echo "$path"
  for copy in {copies}; do
    echo "$sum  $copy/$path" | sha256sum --status -c && cp "$copy/$path" "live/$path"
  done
done < manifest.sha256 | LC_ALL=C sort > restored.txt
