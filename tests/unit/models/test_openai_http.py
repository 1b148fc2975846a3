"""Completions by a server: a real small HTTP server speaks the protocol, well and badly."""

import json
import logging
import time
import traceback
from typing import ClassVar

import openai
import pytest

from privsyn.errors import ConfigError, ModelError, ServerError
from privsyn.models.language import openai_http
from privsyn.models.language.openai_http import ServerTextModel
from privsyn.models.loading import describe_role, load_role
from privsyn.models.settings import ModelsConfig, PerformanceConfig, ServerConfig
from privsyn.models.trial import refuse_silence
from tests.unit.models.completion_server import Server, chat, plain, running
from tests.unit.models.completion_server import status as answer_status

KEY = "sk-canary-key-0123456789"
SECRET = "canary-prompt about a knee"
REPLY = "canary-reply"


def status(code, **headers):
    """An error whose body repeats the prompt, as some servers' do."""
    return answer_status(code, f"{REPLY} {SECRET}", **headers)


@pytest.fixture
def server():
    with running() as server:
        yield server


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(openai_http, "RETRIES", 2)
    monkeypatch.setattr(openai._base_client, "INITIAL_RETRY_DELAY", 0.001)
    openai_http._used.clear()


@pytest.fixture
def make(server):
    made = []

    def model(**settings):
        given = {"url": server.url, "model": "tiny", **settings}
        made.append(ServerTextModel(ServerConfig(**given), "r"))
        return made[-1]

    yield model
    for one in made:
        one._client.close()


def ask(model, *prompts, temperature=0.7):
    return model.complete(prompts or (SECRET,), max_tokens=16, temperature=temperature)


def fails(model, match, *prompts):
    """It raises, in one line, retryably, and shows nothing."""
    with pytest.raises(ServerError, match=match) as caught:
        ask(model, *prompts)
    error = caught.value
    assert error.retryable
    assert error.exit_code == 1
    assert "\n" not in str(error)
    shown = "".join(traceback.format_exception(error))
    for secret in ("canary", KEY):
        assert secret not in shown.replace("test_openai_http", "")
    assert error.__cause__ is None
    assert error.__context__ is None
    return error


def test_completions_in_order(server, make):
    prompts = [f"prompt {i}" for i in range(40)]

    def later_first(number, body):
        text = body["messages"][0]["content"]
        time.sleep(0.02 if int(text.split()[1]) % 2 else 0)
        return chat(f"reply to {text}")

    server.script = later_first
    assert ask(make(), *prompts) == [f"reply to {p}" for p in prompts]
    assert 1 < server.busiest <= openai_http.TOGETHER


def test_what_is_asked(server, make):
    ask(make(), "say \ud800 this")
    [(path, headers, body)] = server.requests
    assert path == "/v1/chat/completions"
    assert headers["authorization"] == f"Bearer {KEY}"
    assert body == {
        "model": "tiny", "messages": [{"role": "user", "content": "say ? this"}], "max_tokens": 16,
        "temperature": 0.7, "top_p": 1.0, "chat_template_kwargs": {"enable_thinking": False},
    }  # fmt: skip


def test_plain_completions(server, make):
    server.script = lambda number, body: plain(f" after {body['prompt']}")
    assert ask(make(chat=False), "a", "b", temperature=0) == [" after a", " after b"]
    path, _, body = server.requests[0]
    assert path == "/v1/completions"
    assert body["model"] == "tiny"
    assert body["temperature"] == 0


@pytest.mark.parametrize("kind", [chat, plain])
def test_a_word_that_the_tokens_ran_out_in_is_left_out(server, make, kind):
    model = make(chat=kind is chat)
    for finish, kept in (("length", "Please send my"), ("stop", "Please send my bil")):
        server.script = lambda number, body, f=finish: kind("Please send my bil", f)
        assert ask(model) == [kept]


def test_keys_come_from_the_environment(server, make, monkeypatch):
    def sent(**headers):
        ask(make(headers=headers))
        return server.requests[-1][1].get("authorization")

    monkeypatch.setenv("MY_KEY", " other-key\n")
    for name in ("Authorization", "authorization"):
        assert sent(**{name: "Bearer ${MY_KEY}"}) == "Bearer other-key"
        assert sent(**{name: ""}) is None
    assert sent(**{"api-key": "${MY_KEY}"}) is None, "a key is for one server"
    assert sent(**{"x-team": "clinic"}) == f"Bearer {KEY}"
    for unset in ("", " "):
        monkeypatch.setenv("OPENAI_API_KEY", unset)
        assert sent() is None
    monkeypatch.delenv("OPENAI_API_KEY")
    assert sent() is None
    for bad in ("canary key", "canary\nkey", "canary-k\u00e9y"):
        monkeypatch.setenv("OPENAI_API_KEY", bad)
        with pytest.raises(ModelError, match=r"OPENAI_API_KEY .* cannot be a key") as caught:
            make()
        assert "canary" not in str(caught.value)


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer ${OPENAI_API_KEY}"}])
def test_a_key_that_the_server_repeats_is_not_shown(server, make, headers):
    server.script = lambda number, body: answer_status(401, f"no {KEY}, nor Bearer {KEY}")
    with pytest.raises(ServerError, match=r"no \[key\], nor Bearer \[key\]"):
        make(headers=headers).check()


@pytest.mark.parametrize(
    ("code", "hint"),
    [(401, "Check the key"), (403, "Check the key"), (404, "models.server.model"), (301, "log")],
)
def test_a_refusal_is_not_asked_again(server, make, code, hint):
    server.script = lambda number, body: status(code)
    fails(make(), f"HTTP {code}.*{hint}")
    assert len(server.requests) == 1


@pytest.mark.parametrize("code", [400, 413, 422])
def test_an_unwanted_prompt_is_an_empty_completion(server, make, code):
    def script(number, body):
        text = body["messages"][0]["content"]
        return status(code) if text == "bad" else chat(f"reply to {text}")

    server.script = script
    assert ask(make(), "a", "bad", "b") == ["reply to a", "", "reply to b"]
    assert len(server.requests) == 3


def test_nothing_but_timeouts(server, make):
    def script(number, body):
        if number < 3:
            server.free.wait(20)
        return chat("late but good")

    server.script = script
    model = make()
    model._client.timeout = 0.2
    fails(model, "cannot be reached")
    assert len(server.requests) == 3
    assert ask(model) == ["late but good"]


def test_no_server_at_all(server, make):
    dead = Server()
    url = dead.url
    dead.server_close()
    fails(make(url=url), r"cannot be reached \(Connection refused\)\. Check models\.server\.url")
    fails(make(url="http://no.such.host.invalid/v1"), r"cannot be reached")
    fails(make(url=server.url.replace("http", "https")), r"cannot be reached \(.*SSL")


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("ALL_PROXY", "ftp://canary:1"),
        ("HTTP_PROXY", "http://canary:port"),
        ("SSL_CERT_FILE", "/c"),
    ],
)
def test_what_the_environment_may_hold(make, monkeypatch, variable, value):
    monkeypatch.setenv(variable, value)
    with pytest.raises(ModelError, match="cannot use the environment") as caught:
        make()
    assert "canary" not in str(caught.value)
    assert caught.value.__cause__ is None


def choices(value):
    return 200, {}, json.dumps({"id": "1", "object": "chat.completion", "choices": value}).encode()


GARBAGE = {
    "not JSON": (200, {}, b"<html>canary</html>"),
    "cut off": (200, {}, b'{"choices": [{"message": {"content": "canary'),
    "no choices": (200, {}, b'{"id": "canary"}'),
    "choices empty": choices([]),
    "no message": choices([{"index": 0}]),
    "content a number": choices([{"message": {"content": 7}}]),
    "content a list": choices([{"message": {"content": [{"text": "canary"}]}}]),
    "deep": (200, {}, b"[" * 100_000),
    # errors in answers with status 200
    "an error": (200, {}, json.dumps({"error": {"message": f"of {SECRET}", "code": 429}}).encode()),
    "Google": (200, {}, b'[{"error": {"code": 503, "status": "UNAVAILABLE", "message": "x"}}]'),
    "a detail": (200, {}, b'{"detail": "Rate limit exceeded"}'),
    "of a choice": choices([{"error": {"code": 502, "message": "x"}, "finish_reason": "error"}]),
    "cut by an error": choices([{"message": {"content": "cut"}, "finish_reason": "error"}]),
}


CODES = {f"HTTP {code}": status(code) for code in (408, 409, 429, 500, 502, 503, 529)}


@pytest.mark.parametrize("name", [*CODES, *GARBAGE])
def test_asked_again_until_it_gives_up(server, make, name):
    reply = (CODES | GARBAGE)[name]
    said = "its answer is not one of an OpenAI-compatible API, or an error"
    server.script = lambda number, body: reply
    told = f"it answers {name}" if name in CODES else said
    fails(make(), f"tiny at 127.0.0.1:{server.server_port}: {told}")
    assert len(server.requests) == 3
    server.script = lambda number, body: reply if number < 5 else chat("good")
    assert ask(make()) == ["good"]


def test_an_endless_answer_is_cut(server, make):
    server.script = lambda number, body: chat("word \ud800" * 100_000)
    [text] = ask(make())
    assert len(text) == 16 * 32
    text.encode("utf-8")


def test_request_budget(server, make):
    model = make(max_requests=5)
    assert len(ask(model, "a", "b", "c")) == 3
    error = fails(model, r"max_requests=5: 3 more requests are needed.* may send 2", "d", "e", "f")
    assert "Raise it" in error.hint
    assert len(server.requests) == 3  # refused before the first was sent
    assert len(ask(make(max_requests=5), "d", "e")) == 2  # one budget a process, not one a model
    fails(model, "may send 0", "f")
    assert len(server.requests) == 5


def counted(text, tokens_in, tokens_out):
    code, headers, body = chat(text)
    usage = {"prompt_tokens": tokens_in, "completion_tokens": tokens_out, "total_tokens": 1}
    return code, headers, json.dumps(json.loads(body) | {"usage": usage}).encode()


def test_tokens_are_counted(server, make):
    server.script = lambda number, body: counted("yes", 10, 3) if number else counted("yes", -1, 1)
    model = make()
    assert len(ask(model, "a", "b", "c")) == 3
    used = openai_http.usage(model._cfg)
    assert (used.requests, used.tokens_in, used.tokens_out, used.uncounted) == (3, 20, 6, 1)
    assert str(used) == "3 requests, 20 tokens in, 6 out, 1 answers without a count"


def test_answers_that_are_none_count_against_the_budget(server, make):
    server.script = lambda number, body: GARBAGE["not JSON"]
    fails(make(max_requests=2), r"max_requests=2: 1 more requests .* may send 0")
    assert len(server.requests) == 2


def test_one_failure_ends_the_rest(server, make):
    server.script = lambda number, body: status(401) if number == 3 else chat("x")
    fails(make(), "HTTP 401", *[f"p{i}" for i in range(200)])
    assert len(server.requests) < 100


def test_no_text_and_no_key_in_logs(server, make, caplog):
    for name in ("openai", "httpx", "httpx2", "httpcore"):
        logging.getLogger(name).setLevel(logging.DEBUG)
    caplog.set_level(logging.DEBUG)
    model = make()
    ask(model)
    server.script = lambda number, body: status(500)
    fails(model, "500")
    server.script = lambda number, body: GARBAGE["not JSON"]
    fails(model, "not one of")
    assert "canary" not in caplog.text
    assert KEY not in caplog.text
    assert [r.name for r in caplog.records if r.name.startswith(("openai", "http"))] == []


def test_a_trial_before_any_prompt(server, monkeypatch):
    def load(**settings):
        given = {"url": server.url, "model": "tiny", **settings}
        return load_role(ModelsConfig(server=ServerConfig(**given)), "text", PerformanceConfig())

    model = load()
    assert model.revision == f"{server.url} tiny chat"
    assert len(server.requests) == 1
    assert server.requests[0][2]["messages"][0]["content"] == "Say yes."
    model._client.close()
    for reply, match in (
        (status(401), "HTTP 401"),
        (status(404), "HTTP 404"),
        (status(400), "HTTP 400"),
        (GARBAGE["not JSON"], "not one of"),
    ):
        server.script = lambda number, body, reply=reply: reply
        with pytest.raises(ServerError, match=match):
            load()


def test_what_of_the_server_enters_the_release_id(monkeypatch):
    base = {"url": "https://models.example:8443/v1", "model": "some/model-7b"}

    def identity(**settings):
        return describe_role(ModelsConfig(server=ServerConfig(**base | settings)), "text")

    found = identity()
    assert found.source == "some/model-7b at models.example:8443"
    assert [one.template_default.chat for one in (found, identity(chat=False))] == [True, False]
    others = [
        {"model": "other"}, {"url": "https://models.example:8443/v2"}, {"chat": False},
        {"extra_body": {"a": 1}}, {"extra_body": {"a": 2}},
        {"extra_body": {"b": {"c": 1, "d": 2}}}, {"logit_bias": True},
    ]  # fmt: skip
    known = [identity(**settings) for settings in others]
    assert len({found.revision, *(other.revision for other in known)}) == 8
    assert [found.adapts, known[-1].adapts] == [False, True]
    turned = {"b": {"d": 2, "c": 1}}
    assert identity(extra_body=turned).revision == known[-2].revision
    patience = {"max_requests": 7, "headers": {"x-team": "clinic"}}
    assert identity() == identity(**patience) == identity(url=base["url"] + "/")
    assert KEY not in repr(found)
    monkeypatch.delenv("OPENAI_API_KEY")
    assert identity() == found  # no key is needed to plan
    models = {"language": "tiny", "server": ServerConfig(**base)}
    here = describe_role(ModelsConfig(language="tiny"), "language")
    assert describe_role(ModelsConfig(**models), "language") == here


@pytest.mark.parametrize(
    "url",
    [
        "localhost:8000/v1",
        "ftp://host/v1",
        "https://",
        "https://user:canary@host/v1",
        "https://host/v1?key=canary",
        "https://host/v1#x",
        "https://host:99999/v1",
        "https://ho\nst/v1",
        "",
    ],
)
def test_an_address_that_is_none(url):
    from privsyn.config import parse_config

    raw = {
        "dataset": {"name": "d", "path": "p", "unit": "u"},
        "account": {"name": "d", "adjacency": "add_remove", "epsilon": 1, "delta": 0},
        "privacy": {"epsilon": 1, "delta": 1e-6},
        "models": {"server": {"url": url, "model": "m"}},
    }
    said = r"models\.server\.url: (not an http\(s\) address|its query holds a secret)"
    with pytest.raises(ConfigError, match=said) as e:
        parse_config(raw)
    assert "canary" not in str(e.value)
    raw["models"] = {}
    cfg = parse_config(raw, ["models.server.url=http://h/v1/", "models.server.model=m"])
    assert cfg.models.server is not None
    assert (cfg.models.server.url, cfg.models.server.chat) == ("http://h/v1", True)


def test_a_query_and_headers(server, make, monkeypatch):
    monkeypatch.setenv("AZURE_KEY", "canary-azure")
    settings = {"api-key": "${AZURE_KEY}", "x-team": "clinic"}
    model = make(url=f"{server.url}?api-version=2024-10-21", headers=settings)
    assert ask(model, "a") == ["reply to a"]
    path, headers, _ = server.requests[-1]
    assert path == "/v1/chat/completions?api-version=2024-10-21"
    assert (headers["api-key"], headers["x-team"]) == ("canary-azure", "clinic")
    server.script = lambda number, body: answer_status(401, "no user has canary-azure")
    with pytest.raises(ServerError) as refusal:
        model.check()
    assert "no user has [key]" in str(refusal.value)
    monkeypatch.delenv("AZURE_KEY")
    with pytest.raises(ModelError, match=r"server: .* AZURE_KEY is not set"):
        make(headers=settings)
    for name, text in {"api-key": "canary", "x y": "a", "x-team": "a\nb"}.items():
        with pytest.raises(ValueError, match="headers") as wrong:
            ServerConfig(url="http://h/v1", model="m", headers={name: text})
        assert "canary" not in wrong.value.errors()[0]["msg"]


class TestLogitBias:
    """Words of the records, made likelier where a server takes ``logit_bias``."""

    NUMBERS: ClassVar = {
        " privacy": [5, 6], " yellow": [7], " knee": [8], " hip": [9], " bill": [1, 2],
        "\u819d": [10],
    }  # fmt: skip

    def script(self, number, body):
        if "content" in body:  # one request suits vLLM and llama.cpp
            assert body["prompt"] == body["content"]
            return 200, {}, json.dumps({"tokens": self.NUMBERS[body["content"]]}).encode()
        bias = body.get("logit_bias", {})
        return chat("yellow yellow" if bias.get("7") == 100 else f"with {bias}")

    def test_single_tokens_get_it(self, server, make):
        server.script = self.script
        model = make(logit_bias=True)
        model.check()
        ratios = {"knee": 1.25, "bill": -0.5, "hip": -1.75, "\u819d": 0.5}
        for _ in range(2):  # a word is looked up once
            (text,) = model.complete(["p"], max_tokens=5, temperature=1.0, log_ratios=ratios)
        assert text == "with {'8': 1.25, '9': -1.75, '10': 0.5}"
        paths = [path for path, _, _ in server.requests]
        assert paths.count("/tokenize") == 2 + 4

    def test_what_a_record_says_is_not_sent(self, server, make):
        assert make(logit_bias=True).tokens("My knee, my 2nd knee") == ["My", "knee", "my"]
        assert server.requests == []

    @pytest.mark.parametrize("lacks", ["tokenize", "logit_bias"])
    def test_a_server_that_cannot(self, server, make, lacks):
        def script(number, body):
            if lacks == "tokenize" and "content" in body:
                return status(404)
            return self.script(number, {**body, "logit_bias": {}})

        server.script = script
        with pytest.raises(ServerError, match=f"no /?{lacks}.*logit_bias=false"):
            make(logit_bias=True).check()


def failed(code, error):
    return code, {}, json.dumps({"error": error}).encode()


def refused(parameter, message="no"):
    kind = "invalid_request_error"
    return failed(400, {"message": message, "param": parameter, "code": "u", "type": kind})


def answered(content, finish="stop", **beside):
    message = {"role": "assistant", "content": content, **beside}
    return choices([{"index": 0, "finish_reason": finish, "message": message}])


TEXT = "My bill has not come yet, please send it."
THOUGHT = "Okay, the user wants a message.\n\nI write about a bill."
THOUGHTS = {
    "tags": f"<think>\n{THOUGHT}\n</think>\n\n{TEXT}",
    "one within another": f"<think>{THOUGHT}<think>x</think>{THOUGHT}</think>{TEXT}",
    "reasoning": f"<reasoning>\n{THOUGHT}\n</reasoning>\n{TEXT}",
    "as entities": f"&lt;think&gt;{THOUGHT}&lt;/think&gt;{TEXT}",
    "Magistral": f"[THINK]{THOUGHT}[/THINK]{TEXT}",
    "Kimi": f"\u25c1think\u25b7{THOUGHT}\u25c1/think\u25b7{TEXT}",
    "Seed": f"<seed:think>{THOUGHT}</seed:think>{TEXT}",
    "Command A": f"<|START_THINKING|>{THOUGHT}<|END_THINKING|><|START_RESPONSE|>{TEXT}"
    "<|END_RESPONSE|>",
    "OpenThinker": f"<|begin_of_thought|>{THOUGHT}<|end_of_thought|>\n\n<|begin_of_solution|>"
    f"{TEXT}<|end_of_solution|>",
    "Gemma 4": f"<|channel>thought\n{THOUGHT}<channel|>{TEXT}",
    "gpt-oss": f"<|channel|>analysis<|message|>{THOUGHT}<|end|><|start|>assistant<|channel|>final"
    f"<|message|>{TEXT}<|return|>",
    "gpt-oss without its tokens": f"analysisWe write. {THOUGHT}assistantfinal{TEXT}",
    "steps": f"Thought: they want a note, and I write it.\nFinal Answer: {TEXT}",
    "an answer in tags": f"<think>{THOUGHT}</think>\n<answer>\n{TEXT}\n</answer>",
}


@pytest.mark.parametrize("name", THOUGHTS)
def test_a_thought_is_no_text(server, make, name):
    server.script = lambda number, body: chat(THOUGHTS[name])
    model = make()
    assert model.complete(["p"], max_tokens=500, temperature=0.7) == [TEXT]
    server.script = lambda number, body: plain(THOUGHTS[name])
    assert make(chat=False).complete(["p"], max_tokens=500, temperature=0.7) == [TEXT]


STILL = {
    "no end": f"<think>\n{THOUGHT}",
    "no mark at all": THOUGHT,
    "Magistral": f"[THINK]{THOUGHT}",
    "gpt-oss": f"<|channel|>analysis<|message|>{THOUGHT}",
    "gpt-oss without its tokens": f"analysisWe write. {THOUGHT}",
    "a text before it": f"<think></think><think>{THOUGHT}",
}


@pytest.mark.parametrize("name", STILL)
def test_a_model_that_is_still_thinking(server, make, name):
    server.script = lambda number, body: chat(STILL[name], "length")
    model = make()
    assert ask(model) == [""]
    assert model.why_empty() == "the model was still thinking at max_tokens"


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "thinking"])
def test_a_thought_beside_the_content(server, make, field):
    model = make()
    server.script = lambda number, body: answered(TEXT, **{field: THOUGHT})
    assert ask(model) == [TEXT]
    for nothing in ("", None):
        server.script = lambda number, body, c=nothing: answered(c, "length", **{field: THOUGHT})
        assert ask(model) == [""]
        assert model.why_empty() == "the model used all max_tokens and wrote no text"
    server.script = lambda number, body: answered("", **{field: THOUGHT})
    ask(model)
    assert "took the whole answer for a thought (reasoning_content)" in str(model.why_empty())
    with pytest.raises(ModelError, match=r"without its parser of thoughts \(--reasoning-parser\)"):
        refuse_silence(model, ["", ""])


def test_an_answer_whose_tokens_went_without_a_text(server, make):
    for reply, model in ((answered("", "length"), make()), (plain("", "length"), make(chat=False))):
        server.script = lambda number, body, reply=reply: reply
        assert ask(model) == [""]
        assert model.why_empty() == "the model used all max_tokens and wrote no text"
        with pytest.raises(ModelError, match=r"Raise max_tokens .* or ask it not to think") as e:
            refuse_silence(model, [""])
        assert "ower max_tokens" not in str(e.value)


@pytest.mark.parametrize(
    "reply",
    [
        failed(402, {"message": "Payment required"}),
        failed(400, {"message": "Your credit balance is too low", "type": "invalid"}),
        failed(403, {"message": "insufficient_quota", "type": "invalid"}),
    ],
)
def test_a_bill_that_is_not_paid_stops_at_once(server, make, reply):
    """Not an empty completion: that would end a release that has drawn."""
    server.script = lambda number, body: reply if number else chat("good")
    model = make()
    model.check()
    fails(model, "answers HTTP 40.*Pay or raise the limit at the provider")
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (f"{TEXT}<|im_end|><|eot_id|></s>", TEXT),
        (f"{TEXT} [/INST] more", TEXT),
        (f"```text\n{TEXT}\n```", TEXT),
        (f"<message>\n{TEXT}\n</message>\nNote: short.", TEXT),
        (f"{TEXT}<end_of_turn>\n<start_of_turn>user\nx", TEXT),
        (f"{TEXT}<\uff5cend\u2581of\u2581sentence\uff5c>", TEXT),
        (f"<|start_header_id|>assistant<|end_header_id|>\n\n{TEXT}<|eot_id|>", TEXT),
        (f"<|im_end|>\n<|im_start|>user\n{TEXT}", ""),
        (f"\x1b[31m{TEXT}\x1b[0m\x07\x00", TEXT),
        (f"\x1b]0;title\x07{TEXT}\u200b\u202e\ufeff", TEXT),
        ("Babies &amp; toddlers &#39;n&#39; co, &quot;it&quot; &amp;amp; all", "Babies & toddlers "
        "'n' co, \"it\" & all"),
        ('{"note": "a &quot;b&quot;"}', '{"note": "a &quot;b&quot;"}'),
        ("one\r\ntwo\rthree\u2028four", "one\ntwo\nthree\nfour"),
    ],
)  # fmt: skip
def test_what_a_machine_adds_is_no_text(server, make, written, text):
    server.script = lambda number, body: chat(written)
    assert make().complete(["p"], max_tokens=99, temperature=0.7) == [text]


def test_a_prompt_that_comes_back_is_no_text(server, make):
    server.script = lambda number, body: plain(f"{body['prompt']} {TEXT}")
    assert ask(make(chat=False), "The following is a message to a clinic.\nText:") == [f" {TEXT}"]


NAMES = {
    "OpenAI": lambda name: refused(name, f"Unsupported value: '{name}'"),
    "its message alone": lambda name: refused(None, f"Unrecognized request argument: {name}"),
    "FastAPI": lambda name: (422, {}, json.dumps(
        {"detail": [{"loc": ["body", name], "msg": "extra fields not permitted"}]}).encode()),
}  # fmt: skip


@pytest.mark.parametrize(
    "parameter", ["temperature", "top_p", "chat_template_kwargs", "max_tokens", "stop"]
)
@pytest.mark.parametrize("form", NAMES)
def test_a_parameter_that_is_refused_is_left_out_and_told(server, make, caplog, form, parameter):
    server.script = lambda number, body: NAMES[form](parameter) if parameter in body else chat(TEXT)
    model = make()
    model.check()
    names = tuple(f"\n{name}" for name in ("Topic", "Author", "Words", "Text", "More"))
    texts = model.complete(["a", "b"], max_tokens=99, temperature=0.7, top_p=0.9, until=names)
    assert texts == [TEXT, TEXT]
    last = server.requests[-1][2]
    sent = {"temperature", "top_p", "chat_template_kwargs", "max_tokens", "stop"} - {parameter}
    assert last.get("stop", list(names[:4])) == list(names[:4]), "OpenAI takes four"
    assert sent <= set(last)
    assert ("max_completion_tokens" in last) == (parameter == "max_tokens")
    assert [r.getMessage() for r in caplog.records if f"refuses {parameter}:" in r.getMessage()]
    assert len(caplog.records) == 1


def test_a_prompt_that_names_a_parameter_changes_no_other_request(server, make):
    def script(number, body):
        text = body["messages"][0]["content"]
        return refused(None, f"filtered: {text}") if "temperature" in text else chat(TEXT)

    server.script = script
    model = make()
    assert [*ask(model, "my temperature is 39"), *ask(model, "b")] == ["", TEXT]
    assert server.requests[-1][2]["temperature"] == 0.7


def test_a_refusal_is_told_in_the_servers_words(server, make):
    server.script = lambda number, body: refused(
        None, f"This model's maximum context is 8 tokens. Key {KEY}, prompt: Say yes.\n"
    )
    with pytest.raises(ServerError, match=r"HTTP 400 \(This model's maximum context is 8 tok") as e:
        make().check()
    assert KEY not in str(e.value)
    assert "[prompt]" in str(e.value)
    server.script = lambda *_: failed(400, {"message": "no", "failed_generation": REPLY})
    with pytest.raises(ServerError) as e:
        make().check()
    assert REPLY not in str(e.value)


def test_further_fields_of_a_request(server, make):
    ask(make(extra_body={"reasoning_effort": "low", "chat_template_kwargs": {"thinking": False}}))
    body = server.requests[-1][2]
    assert body["reasoning_effort"] == "low"
    assert body["chat_template_kwargs"] == {"enable_thinking": False, "thinking": False}
    ask(make(extra_body={"chat_template_kwargs": None}))
    assert "chat_template_kwargs" not in server.requests[-1][2]
    ask(make(extra_body={"chat_template_kwargs": {"enable_thinking": True}}))
    assert server.requests[-1][2]["chat_template_kwargs"] == {"enable_thinking": True}
    server.script = lambda number, body: refused("reasoning_effort", "unknown reasoning_effort")
    with pytest.raises(ServerError, match="unknown reasoning_effort"):  # asked for: never left out
        make(extra_body={"reasoning_effort": "low"}).check()
    for field in ("model", "messages", "max_tokens", "temperature", "n"):
        with pytest.raises(ValueError, match=f"{field} is set by privsyn"):
            ServerConfig(url="http://h/v1", model="m", extra_body={field: 1})


def test_content_in_parts(server, make):
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": THOUGHT}]}
    server.script = lambda number, body: answered([thought, {"type": "text", "text": TEXT}])
    assert ask(make()) == [TEXT]
    server.script = lambda number, body: answered([thought], "length")
    assert ask(make()) == [""]


def test_nothing_to_ask(server, make):
    assert make().complete([], max_tokens=3, temperature=1.0) == []
    assert server.requests == []
    for bad in ({"max_tokens": 0}, {"temperature": -1.0}):
        with pytest.raises(ValueError, match="temperature="):
            make().complete(["x"], **{"max_tokens": 5, "temperature": 1.0, **bad})
