cd repo && git checkout -q "$(git log -1 --format=%H --diff-filter=D -- {lost})^" -- {lost}
git commit -q -m '{message}'; cd ..
