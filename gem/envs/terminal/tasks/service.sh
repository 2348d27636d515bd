python3 - <<'END'
import json, urllib.request
key = {key}
page, total = 1, 0
while page:
    url = "http://127.0.0.1:{port}/items?page=%d" % page
    request = urllib.request.Request(url, headers={{"X-Key": key}} if key else {{}})
    answer = json.load(urllib.request.urlopen(request))
    total += sum(item["count"] for item in answer["items"] if item["kind"] == "{kind}")
    page = answer["next"]
open("total.txt", "w").write("%d\n" % total)
END
