python3 - <<'END'
import csv
for name, charset in csv.reader(open("charsets.csv")):
    text = open(name, encoding=charset, newline="").read().lstrip("\ufeff")
    open(name, "w", encoding="utf-8", newline="").write(text.replace("\r\n", "\n"))
END
