find site -type d -exec chmod 755 {} +
find site -type f ! -name '*.sh' -exec chmod 644 {} +
find site -type f -name '*.sh' -exec chmod 755 {} +
find site/private -type f -exec chmod 600 {} +
find site/private -depth -type d -exec chmod 700 {} +
