"""A server on loopback that speaks the protocols of vLLM and SGLang, with a real model behind it.

Requests, responses and refusals have the shapes of vLLM 0.33.0 (``/v1/completions``, ``/collective_rpc``,
``/pause``, ``/resume``, ``/reset_prefix_cache``, ``/update_weight_version``) and SGLang 0.5.23
(``/generate``, ``/update_weights_from_disk``, ``/update_weight_version``), read from their source. The model
runs a whole forward pass per token, and chance is torch's.
"""

import json
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import SHUT_RDWR
from threading import Condition, Event, Thread
from urllib.parse import urlsplit

import torch
from safetensors.torch import load_file


class Refused(Exception):
    """A response that is an error."""

    def __init__(self, status, message):
        super().__init__(message)
        self.status = status


class TokenServer:
    """Serves `model`; leaving the block stops it.

    `tempered`: whether log probabilities are of the tempered distribution. `labels`: whether the server knows
    labels of weights, pausing and token ids beside their names; older ones do not. `mangle` changes each
    sampled response, or returns what to send in its place: a status with headers and bytes, or None to close
    the connection. While `hold` is clear, every answer waits behind its first token; `begun` is set then.
    """

    def __init__(self, model, protocol, context=512, tempered=True, labels=True, mangle=None, port=0):
        self.model, self.protocol, self.context = model, protocol, context
        self.tempered, self.labels, self.mangle = tempered, labels, mangle
        self.label = "default"
        self.asked, self.keys = [], []  # (path, body), and the Authorization header of each
        self.hold, self.begun = Event(), Event()
        self.hold.set()
        self.paused = False
        self.sampling = 0
        self.changed = Condition()
        self.fail_at = ""  # a path that answers 500
        server = self

        self.connections = set()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self):
                super().setup()
                server.connections.add(self.connection)

            def do_POST(self):
                server.handle(self)

            def log_message(self, *args):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.http.daemon_threads = True
        self.thread = Thread(target=self.http.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.http.server_port}"

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.hold.set()
        self.http.shutdown()
        self.http.server_close()
        for connection in self.connections:
            with suppress(OSError):
                connection.shutdown(SHUT_RDWR)
        self.thread.join()

    def paths(self):
        return [path for path, _ in self.asked]

    # -- HTTP

    def handle(self, handler):
        path = urlsplit(handler.path).path
        body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        self.asked.append((handler.path, body))
        self.keys.append(handler.headers["Authorization"])
        try:
            if path == self.fail_at:
                raise Refused(500, "the engine failed")
            status, headers, content = self.respond(path, body)
        except Refused as refused:
            error = {
                "message": str(refused),
                "type": "BadRequestError",
                "param": None,
                "code": refused.status,
            }
            status, headers, content = refused.status, {}, json.dumps({"error": error}).encode()
        except ConnectionAbortedError:
            handler.close_connection = True
            return
        try:
            handler.send_response(status)
            for name, value in {"Content-Length": str(len(content)), **headers}.items():
                handler.send_header(name, value)
            handler.end_headers()
            handler.wfile.write(content)
        except ConnectionError:
            pass  # the client did not wait
        handler.close_connection |= int(headers.get("Content-Length", len(content))) != len(content)

    def respond(self, path, body):
        if path == self.sampler:
            answer = self.sample(body)
            if self.mangle is not None:
                answer = self.mangle(answer)
            if answer is None:
                raise ConnectionAbortedError
        else:
            commands = self.vllm_commands() if self.protocol == "vllm" else self.sglang_commands()
            if path not in commands:
                raise Refused(404, "Not Found")
            answer = commands[path](body)
        if isinstance(answer, tuple):
            return answer
        return 200, {}, b"" if answer is None else json.dumps(answer).encode()

    # -- weights

    def vllm_commands(self):
        commands = {"/collective_rpc": self.reload, "/reset_prefix_cache": self.reset}
        if self.labels:
            commands |= {"/pause": self.pause, "/resume": self.resume, "/update_weight_version": self.relabel}
        return commands

    def sglang_commands(self):
        return {"/update_weights_from_disk": self.update, "/update_weight_version": self.relabel}

    def load(self, folder):
        files = sorted(Path(folder).glob("*.safetensors"))
        if not files:
            raise FileNotFoundError(f"Cannot find any model weights with `{folder}`")
        for file in files:
            self.model.load_state_dict(load_file(file))

    def pause(self, body):
        assert self.asked[-1][0] == "/pause?mode=wait"
        with self.changed:
            self.paused = True
            self.changed.wait_for(lambda: not self.sampling)
        return {"status": "paused"}

    def resume(self, body):
        with self.changed:
            self.paused = False
        return {"status": "resumed"}

    def reload(self, body):
        assert body["method"] == "reload_weights"
        assert not self.sampling, "weights change under a request"
        try:
            self.load(body["kwargs"]["weights_path"])
        except (OSError, RuntimeError) as error:
            raise Refused(500, str(error)) from error
        return {"results": [None]}

    def reset(self, body):
        return {"success": not self.sampling}

    def relabel(self, body):
        self.label = body["new_version"]
        return {"success": True, "new_version": self.label}

    def update(self, body):
        with self.changed:
            self.changed.wait_for(lambda: not self.sampling)
            try:
                self.load(body["model_path"])
            except (OSError, RuntimeError) as error:
                content = {"success": False, "message": str(error), "num_paused_requests": 0}
                return 400, {}, json.dumps(content).encode()
        self.label = body["weight_version"]
        return {"success": True, "message": "Succeeded to update model weights.", "num_paused_requests": 0}

    # -- sampling

    @property
    def sampler(self):
        return {"vllm": "/v1/completions", "sglang": "/generate"}[self.protocol]

    def sample(self, body):
        with self.changed:
            if self.paused:
                raise Refused(503, "The engine is paused for a weight update.")
            self.sampling += 1
        try:
            return self.vllm(body) if self.protocol == "vllm" else self.sglang(body)
        finally:
            with self.changed:
                self.sampling -= 1
                self.changed.notify_all()

    def vllm(self, body):
        prompt = body["prompt"]
        assert (body["top_p"], body["top_k"], body["min_p"], body["repetition_penalty"]) == (1, -1, 0, 1)
        if not 0 <= body["temperature"] <= 2:
            raise Refused(400, f"temperature must be in [0, 2], got {body['temperature']}.")
        if len(prompt) >= self.context:
            raise Refused(
                400,
                f"This model's maximum context length is {self.context} tokens. However, your prompt "
                f"contains {len(prompt)} input tokens, which exceeds this limit even without any output "
                "tokens. Please reduce the length of the input prompt.",
            )
        limit = min(body["max_tokens"], self.context - len(prompt))
        label = self.label
        ids, logprobs, tops = self.generate(prompt, limit, body, body["seed"], body["logprobs"])
        stopped = ids[-1] in body["stop_token_ids"]
        choice = {
            "index": 0,
            "text": "",
            "logprobs": {
                "text_offset": [0] * len(ids),
                "token_logprobs": [max(value, -9999.0) for value in logprobs],
                "tokens": [f"token_id:{each}" for each in ids],
                "top_logprobs": [{f"token_id:{i}": value for value, i in top} for top in tops],
            },
            "finish_reason": "stop" if stopped else "length",
            "stop_reason": ids[-1] if stopped else None,
            "prompt_logprobs": None,
        }
        if self.labels:
            assert body["return_token_ids"]
            assert body["return_weight_versions"]
            spans = [{"version": label, "start": 0, "end": len(ids)}]
            choice |= {"token_ids": ids, "prompt_token_ids": prompt, "weight_versions": spans}
        usage = {"prompt_tokens": len(prompt), "completion_tokens": len(ids)}
        if body.get("prompt_logprobs") is not None:
            named = zip(prompt[1:], self.scored(prompt), strict=True)
            choice["prompt_logprobs"] = [None, *({str(i): {"logprob": value}} for i, value in named)]
        return {"id": "cmpl-1", "object": "text_completion", "choices": [choice], "usage": usage}

    def sglang(self, body):
        prompt, params = body["input_ids"], body["sampling_params"]
        assert body["return_logprob"]
        assert (params["top_p"], params["top_k"], params["min_p"], params["repetition_penalty"]) == (
            1,
            -1,
            0,
            1,
        )
        limit = params["max_new_tokens"]
        if len(prompt) >= self.context:
            raise Refused(
                400,
                f"The input ({len(prompt)} tokens) is longer than the model's context length "
                f"({self.context} tokens).",
            )
        if len(prompt) + limit > self.context - 1:
            raise Refused(
                400,
                f"Requested token count exceeds the model's maximum context length of {self.context} tokens. "
                f"You requested a total of {len(prompt) + limit} tokens: {len(prompt)} tokens from the input "
                f"messages and {limit} tokens for the completion. Please reduce the number of tokens in the "
                "input messages or the completion to fit within the limit.",
            )
        label = self.label
        ids, logprobs, tops = self.generate(
            prompt, limit, params, params["sampling_seed"], body.get("top_logprobs_num", 0)
        )
        stopped = ids[-1] in params["stop_token_ids"]
        meta = {
            "id": "1",
            "finish_reason": {"type": "stop", "matched": ids[-1]}
            if stopped
            else {"type": "length", "length": len(ids)},
            "prompt_tokens": len(prompt),
            "completion_tokens": len(ids),
            "weight_version": label,
            "output_token_logprobs": [[value, i, None] for value, i in zip(logprobs, ids, strict=True)],
        }
        if body.get("top_logprobs_num"):
            meta["output_top_logprobs"] = [[[value, i, None] for value, i in top] for top in tops]
        if body.get("logprob_start_len") == 0:
            named = zip(self.scored(prompt), prompt[1:], strict=True)
            meta["input_token_logprobs"] = [[None, prompt[0], None], *([v, i, None] for v, i in named)]
        if self.labels:
            meta["weight_versions"] = [{"version": label, "start": 0, "end": len(ids)}]
        return {"text": "", "output_ids": ids, "meta_info": meta}

    def scored(self, prompt):
        """Return the log probability of each token of a prompt but the first."""
        with torch.inference_mode():
            logp_TV = self.model(input_ids=torch.tensor([prompt])).logits[0].double().log_softmax(-1)
        return logp_TV[:-1].gather(1, torch.tensor(prompt[1:])[:, None])[:, 0].tolist()

    def generate(self, prompt, limit, params, seed, most):
        """Return ids, their log probabilities, and the `most` most likely of each step."""
        temperature, stops = params["temperature"], set(params["stop_token_ids"])
        generator = torch.Generator().manual_seed(seed)
        ids, logprobs, tops = [], [], []
        while len(ids) < limit and not (ids and ids[-1] in stops):
            with torch.inference_mode():
                logits_V = self.model(input_ids=torch.tensor([prompt + ids])).logits[0, -1].double()
            logp_V = torch.log_softmax(logits_V, -1)
            if allowed := params.get("allowed_token_ids"):
                barred_V = torch.ones_like(logits_V, dtype=torch.bool)
                barred_V[allowed] = False
                logits_V = logits_V.masked_fill(barred_V, float("-inf"))
            if temperature == 0:
                token = int(logits_V.argmax())
            else:
                tempered_V = torch.log_softmax(logits_V / temperature, -1)
                token = int(torch.multinomial(tempered_V.exp(), 1, generator=generator))
                logp_V = tempered_V if self.tempered else logp_V
            ids.append(token)
            logprobs.append(float(logp_V[token]))
            best = logp_V.topk(max(most, 1))
            tops.append(list(zip(best.values.tolist(), best.indices.tolist(), strict=True)))
            if len(ids) == 1:
                self.begun.set()
                self.hold.wait(60)
        return ids, logprobs, tops
