pid=$({find} | head -n 1)
name=$(tr '\0' '\n' < /proc/$pid/cmdline | tail -n 1)
kill -TERM "$pid"
until [ -s "state/$name" ]; do sleep 0.02; done
echo "$name" > ended.txt
