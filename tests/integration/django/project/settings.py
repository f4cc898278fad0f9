"""A project as its users have it. The tests say where its database is."""

import os
from pathlib import Path

SITE = Path(os.environ["SITE"])
SECRET_KEY = "for tests"
USE_TZ = True
TIME_ZONE = "Europe/Berlin"
INSTALLED_APPS = ["jobpool.integrations.django", "shop"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
if "SITE_DATABASE" in os.environ:
    HOST, PORT, NAME, USER = os.environ["SITE_DATABASE"].split()
    DATABASE = {
        "ENGINE": "django.db.backends.postgresql",
        "HOST": HOST,
        "PORT": PORT,
        "NAME": NAME,
        "USER": USER,
        "PASSWORD": os.environ["SITE_PASSWORD"],
        "OPTIONS": {"isolation_level": 2, "application_name": "a shop"},
        "TEST": {"NAME": os.environ.get("SITE_TESTS", NAME)},
    }
else:
    DATABASE = {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": SITE / "db.sqlite3",
        "TEST": {"NAME": SITE / "test.sqlite3"},
    }
DATABASES = {"default": DATABASE}
TASKS = {
    "default": {
        "BACKEND": "jobpool.integrations.django.JobpoolBackend",
        "QUEUES": ["default", "cpu"],
        "OPTIONS": {
            "modules": ["shop.letters"],
            "defaults": {"timeout": "20s", "memory": "256MiB"},
            "tasks": {"shop.tasks.hang": {"timeout": "5s"}},
            "quotas": {"vendor": {"rate": "1000/s", "per": "args.vendor"}},
            "schedules": {
                "new-year": {"task": "shop.tasks.count_orders", "cron": "0 0 1 1 *"}
            },
        },
    }
}
