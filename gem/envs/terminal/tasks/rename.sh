for file in photos/IMG_*; do
  name=${file#photos/IMG_}; rest=${name#*_}
  folder=sorted/${name:0:4}/${name:4:2}
  mkdir -p "$folder" && mv "$file" "$folder/${name:6:2}-${rest%.*}.jpg"
done
