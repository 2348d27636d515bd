"""The code of an agent program that tests play with, and what becomes of it wherever it runs."""

from gem.record import StopReason

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

PROBE = """
wrong = []
def refused(what, call):
    try: found = call()
    except Exception: return
    wrong.append(f"{what}: {found!r:.200}")
ask("mine")
refused("the host", lambda: socket.create_connection(("127.0.0.1", int(sys.argv[2])), 2))
for place in ("1.1.1.1", "10.0.0.1", "169.254.169.254", "::1"):
    refused(place, lambda: socket.create_connection((place, 80), 2))
refused("DNS", lambda: socket.getaddrinfo("example.com", 80))
base = URL.removesuffix("/v1")
refused("episodes", lambda: send("/episodes", url=base))
refused("its reward", lambda: send("/episodes/episode-0/reward", {"reward": 1.0}, url=base))
for key in ("k", "", "episode-0", "episode-1"):
    refused(f"the key {key!r}", lambda: send("/chat/completions", {"messages": [{"role": "user"}]}, key))
refused("gem", lambda: __import__("gem"))
"""
"""Code that asks its model, and notes in `wrong` what else it reaches; its argument is a port of the host."""

ENDINGS = [
    ("ask('x')", StopReason.FAILED, ""),
    ("solve(); raise OSError", StopReason.SOLVED, ""),
    ("ask('x'); os.kill(os.getpid(), 11)", StopReason.FAILED, ""),
    ("x = bytearray(1 << 33)", StopReason.FAILED, ""),
    ("print('on', flush=True); time.sleep(600)", StopReason.TIME_LIMIT, "time"),
    ("solve(); print('on', flush=True); time.sleep(600)", StopReason.SOLVED, "time"),
    ("[ask(str(i)) for i in range(9)]", StopReason.TURN_LIMIT, ""),
]
"""Code, why the episode stops with a limit of two turns, and what ended the program."""
