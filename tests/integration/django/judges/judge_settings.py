"""Settings for tests of others, and for the supervisors that they need."""

import json
import logging
import os
from pathlib import Path

FOLDER = Path(os.environ["JUDGES"])
SECRET_KEY = "for tests"
USE_TZ = "JUDGES_BACKEND" in os.environ  # each as its own settings say
INSTALLED_APPS = ["tasks"]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": FOLDER / "test.sqlite3",
        "TEST": {"NAME": FOLDER / "test.sqlite3"},
    }
}


class Lines(logging.Handler):
    """Writes what a child logs where the tests' process finds it."""

    def emit(self, record):
        line = json.dumps({"level": record.levelno, "text": self.format(record)})
        with (FOLDER / "lines").open("a") as file:
            file.write(f"{line}\n")


if "JOBPOOL_RUN" in os.environ:
    LOGGING = {
        "version": 1,
        "handlers": {"lines": {"()": Lines}},
        "loggers": {"django.tasks": {"handlers": ["lines"], "level": "DEBUG"}},
    }
OURS = "jobpool.integrations.django.JobpoolBackend"
if "JUDGES_STORE" in os.environ:  # a supervisor's
    TASKS = {
        "default": {
            "BACKEND": OURS,
            "QUEUES": [],
            "OPTIONS": {"store": os.environ["JUDGES_STORE"]},
        }
    }
else:
    BACKEND = os.environ.get("JUDGES_BACKEND", OURS)
    TASKS = {"default": {"BACKEND": BACKEND, "QUEUES": ["default", "queue-1"]}}
