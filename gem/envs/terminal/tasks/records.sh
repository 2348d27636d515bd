python3 - <<'END'
import json
names = {{p['id']: p['name'] for p in map(json.loads, open('people.jsonl'))}}
best = {{}}
for e in map(json.loads, open('events.jsonl')):
    if e['points'] >= {limit}{test}:
        best[e['person']] = max(best.get(e['person'], 0), e['points'])
with open('best.tsv', 'w') as out:
    for i in sorted(best):
        print(i, names[i], best[i], sep='\t', file=out)
END
