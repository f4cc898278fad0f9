"""Django's own tasks, or those of django-tasks."""

import django

if django.VERSION >= (6, 0):
    from django import tasks
    from django.tasks import exceptions, signals, task, task_backends

    DUMMY = "django.tasks.backends.dummy.DummyBackend"
    InvalidTask = exceptions.InvalidTask
else:
    import django_tasks as tasks
    from django_tasks import exceptions, signals, task, task_backends

    DUMMY = "django_tasks.backends.dummy.DummyBackend"
    InvalidTask = exceptions.InvalidTaskError

TaskResultDoesNotExist = exceptions.TaskResultDoesNotExist
TaskResultStatus = tasks.TaskResultStatus

__all__ = ["exceptions", "signals", "task", "task_backends"]
