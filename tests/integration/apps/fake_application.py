"""The smallest object that satisfies `core.app.Application`; handlers take any JSON."""

import json

from jobpool.core.application.handler_spec import HandlerSpec


class FakeApplication:
    """Handlers by kind; each takes one JSON value and returns another."""

    def __init__(self):
        self.handlers = {}
        self.hooks = []

    def handler(self, function):
        self.handlers[function.__name__] = function
        return function

    def declared_schedules(self):
        return ()

    def declared_quotas(self):
        return ()

    def handler_specs(self):
        return tuple(HandlerSpec(kind=kind, pool="cpu") for kind in self.handlers)

    def named_codec(self):
        return None

    def named_store(self):
        return None

    def add_command(self, command):
        raise NotImplementedError(f"no test here declares a command: {command}")

    def redacted_texts(self, kind, payload):
        return ()

    def start_child(self):
        for hook in self.hooks:
            hook()

    def invoke(self, kind, payload, result_max_bytes):
        if kind == "raw":
            return b"null"
        return json.dumps(self.handlers[kind](json.loads(payload))).encode()
