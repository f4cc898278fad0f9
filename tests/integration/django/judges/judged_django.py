"""Our backend in the place of Django's own, so that Django's tests judge it.

Their settings name `DummyBackend` and `ImmediateBackend`.
"""

from django.tasks.backends import dummy, immediate
from judged import Listing, Waiting

dummy.DummyBackend = Listing
immediate.ImmediateBackend = Waiting
