"""The code of an agent program that tests play with."""

ACT = """
import json, os, socket, sys, time, urllib.error, urllib.request
URL, KEY = os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]
def send(path, body=None, key=KEY, url=URL):
    try: return send_once(path, body, key, url)
    except urllib.error.HTTPError as error:
        sys.stderr.write(error.read().decode())
        raise
def send_once(path, body, key, url):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"authorization": f"Bearer {key}"})
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.load(answer)
def ask(text):
    body = {"model": "any", "messages": [{"role": "user", "content": text}]}
    return send("/chat/completions", body)["choices"][0]["message"]["content"]
def solve():
    with open("answer.txt", "w") as file:
        file.write("42")
exec(sys.argv[1])
"""
"""A program that runs the code of its first argument, with the functions above."""
