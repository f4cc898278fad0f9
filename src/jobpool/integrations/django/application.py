"""The application that supervisors run, as ``--app`` or ``JOBPOOL_APP`` names it.

``manage.py jobpool`` names it by itself. Importing it sets Django up, and imports all
modules that define tasks.
"""

from __future__ import annotations

import os

import django
from django.apps import apps

if not apps.ready:
    django.setup()

from jobpool.integrations.django.backend import supervised
from jobpool.integrations.django.options import BACKEND_VARIABLE

jobs = supervised(os.environ.get(BACKEND_VARIABLE, ""))
