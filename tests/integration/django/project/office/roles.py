def of_user(user):
    """Return what a user may do, as a project decides it."""
    return {"bea": "operator", "cy": None}.get(user.get_username(), "no such role")
