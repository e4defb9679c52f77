#!/bin/sh
# Columns of one's own for `diskproof monitor --module`: how many files a folder has, and their size.
folder=${1:-.}
echo '{"type":"header","protocol":1,"name":"folder","columns":[{"name":"files","unit":"count"},{"name":"size","unit":"MiB"}]}'
while sleep "${DISKPROOF_INTERVAL:-1}"; do
    files=$(find "$folder" -type f | wc -l)
    size=$(du -sm "$folder" | cut -f1)
    echo "{\"type\":\"sample\",\"values\":[$files,$size]}"
done
