cd links && for link in *; do
  [ -e "$link" ] || ln -sfn "../$(cd .. && find store -type f -name "$link")" "$link"
done; cd ..
