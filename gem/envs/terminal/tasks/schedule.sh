python3 - <<'END'
import datetime
def field(text, low, high):
    found = set()
    for part in text.split(","):
        part, _, step = part.partition("/")
        first, _, last = ("%d-%d" % (low, high) if part == "*" else part).partition("-")
        found |= set(range(int(first), int(last or first) + 1, int(step or 1)))
    return found
[line] = [line for line in open("jobs.cron") if line.split()[5:] == ["{job}"]]
minute, hour, dom, month, dow = line.split()[:5]
with open("runs.txt", "w") as out:
    day = datetime.date.fromisoformat("{first}")
    while day <= datetime.date.fromisoformat("{last}"):
        dates = day.day in field(dom, 1, 31) and day.month in field(month, 1, 12)
        if dates and day.isoweekday() % 7 in field(dow, 0, 6):
            for h in sorted(field(hour, 0, 23)):
                for m in sorted(field(minute, 0, 59)):
                    print("%s %02d:%02d" % (day, h, m), file=out)
        day += datetime.timedelta(1)
END
