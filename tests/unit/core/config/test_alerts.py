"""`[alerts]`: what turns watching on, what is shown, and what is refused."""

import pytest

from jobpool.core.config.settings import AlertSettings
from jobpool.errors import ConfigError
from support.configuring import build, toml

HOOK = "https://hooks.example.com/T0/secret?key=s3cret"


def alerts(text):
    return build(files=toml(f"[alerts]\n{text}")).settings.alerts


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None),
        ("watch = false\ndead = 3", None),
        ("watch = true", AlertSettings()),
        ("dead = 3", AlertSettings(dead=3)),
        (f'webhook = "{HOOK}"', AlertSettings(webhook=HOOK)),
        (
            'command = ["page", "--team", "shop"]\ndigest = "08:30"',
            AlertSettings(command=("page", "--team", "shop"), digest=510),
        ),
        (
            'oldest_age = "none"\nfailure_rate = 2\nratio = 0.5',
            AlertSettings(oldest_age_s=None, failure_rate=2.0, ratio=0.5),
        ),
    ],
)
def test_anything_that_is_set_turns_watching_on(text, expected):
    """But for `watch = false`; a rule that is "none" is off."""
    assert alerts(text) == expected


def test_what_may_be_secret_is_not_listed():
    """Paths of webhooks are passwords, often."""
    text = f'[alerts]\nwebhook = "{HOOK}"\nheartbeat_url = "{HOOK}"\n'
    values = build(files=toml(f'{text}command = ["page", "s3cret"]')).values
    assert values["alerts.webhook"].shown == "https://hooks.example.com/…"
    assert values["alerts.command"].shown == "page …"
    assert "/T0/" not in repr(values)
    assert "s3cret" not in repr(values)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ('webhook = "hooks.example.com"', "expected the URL of a web server"),
        ('webhook = "https://u:p@x.example"', "without a name and password"),
        ('webhook = "https://x.example/a b"', "expected the URL"),
        ('webhook = "https://x.example/\\nHost: y"', "expected the URL"),
        ('webhook = "file:///etc/passwd"', "expected the URL"),
        ('webhook = "https://x.example:99999/"', "expected the URL"),
        ('command = "page shop"', "expected a list of a program"),
        ("command = []", "expected a list of a program"),
        ('command = [""]', "expected a list of a program"),
        ('digest = "24:00"', "expected a time of day in UTC"),
        ("ratio = 1.5", "expected a share from 0 to 1"),
        ("ratio = true", "expected a share from 0 to 1"),
        ("failure_rate = 0.5", "expected a factor"),
        ('secret_file = "/x"', "there is no webhook to sign"),
        ('digest = "08:00"', "nobody would get the digest"),
        ("deads = 1", "unknown option 'deads'; did you mean 'dead'"),
    ],
)
def test_what_is_wrong_is_refused(text, match):
    with pytest.raises(ConfigError, match=match):
        alerts(text)
