python3 - <<'END'
import csv, json
from collections import defaultdict
prices = {{}}
if {hard}:
    prices = {{row["product"]: int(row["cents"]) for row in csv.DictReader(open("products.csv", newline=""))}}
total = defaultdict(int)
for row in csv.DictReader(open("orders.csv", newline="")):
    if row["status"] == "paid" and row["date"].startswith("{year}"):
        cents = prices[row["product"]] if {hard} else int(row["cents"])
        total[row["region"]] += int(row["quantity"]) * cents
json.dump({{region: cents / 100 for region, cents in total.items()}}, open("report.json", "w"))
END
