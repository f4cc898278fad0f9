"""A view that shows the dashboard to those whom Django's admin lets in.

It works below WSGI and ASGI alike. What an open page is told while it is open needs a
connection that stays open, which a worker would be held by: pages are told to do
without, and are as new as their last load.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from django.contrib.auth import REDIRECT_FIELD_NAME
from django.contrib.auth.views import redirect_to_login
from django.http import HttpResponse
from django.urls import reverse
from django.utils.module_loading import import_string
from django.views.decorators.csrf import csrf_exempt

from jobpool.errors import ConfigError, StoreError
from jobpool.integrations.django.backend import closing, the_backend
from jobpool.integrations.serving import Request, Serving
from jobpool.operations.principal import Principal, Role

_ROLES = {role.text: role for role in Role}


# Forms of other sites are refused by what browsers say of a request's origin.
@csrf_exempt  # type: ignore[untyped-decorator] # Django has no types
def show(request: Any, path: str = "") -> Any:
    """Show a page of the dashboard, or do what its form asks for.

    Args:
        request: whose user must be one of the staff.
        path: below where the dashboard is.

    Raises:
        ConfigError: the backend or ``OPTIONS["role"]`` is wrong.
        DisallowedHost: as for all of Django's views.
    """
    backend = the_backend("")
    role = _role_of(request.user, backend.read.role)
    if role is None:
        return redirect_to_login(
            request.get_full_path(), reverse("admin:login"), REDIRECT_FIELD_NAME
        )
    principal = Principal(
        who=request.user.get_username(),
        role=role,
        origin=f"Django's admin on {request.get_host()}",
    )
    asked = Request(
        method=request.method,
        path=request.path,
        root=request.path.removesuffix(path).rstrip("/"),
        query=request.META.get("QUERY_STRING", ""),
        scheme=request.scheme,
        headers=dict(request.headers),
        body=request.body,
        client=request.META.get("REMOTE_ADDR", ""),
    )
    try:
        answer = Serving.of(backend.jobs.url).answer(asked, principal)
    except StoreError as exc:
        status = HTTPStatus.SERVICE_UNAVAILABLE
        return HttpResponse(str(exc), status=status, content_type="text/plain")
    response = HttpResponse(answer.body, status=answer.status)
    del response["Content-Type"]
    for name, value in answer.headers:
        response[name] = value
    return response


def _role_of(user: Any, path: str | None) -> Role | None:
    """Return what a user may do; None: nothing, and see nothing.

    Args:
        user: Django's.
        path: of the project's own function, if it has one.

    Raises:
        ConfigError: it returns something else than a role.
    """
    if not (user.is_active and user.is_staff):
        return None
    if path is None:
        return Role.ADMIN if user.is_superuser else Role.VIEWER
    role = import_string(path)(user)
    if role is not None and role not in _ROLES:
        raise ConfigError(
            f"OPTIONS: role: {path} has returned {role!r}; expected one of "
            f"{', '.join(_ROLES)}, or None for nobody"
        )
    return None if role is None else _ROLES[role]


def _close(*, url: str, **_more: Any) -> None:
    """Close what pages have opened."""
    Serving.close(url)


closing.connect(_close, dispatch_uid="jobpool")
