"""The WSGI entry point: `gunicorn wsgi:app`."""

from hub.app import create_app

app = create_app()
